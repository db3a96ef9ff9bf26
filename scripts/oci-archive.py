#!/usr/bin/env python3
"""Writes an image of one static binary as an OCI archive, without a container engine.

    oci-archive.py BINARY OUT.tar NAME[:TAG] [--arch amd64|arm64] [--version VERSION]

The same binary and arguments give the same archive: no times, owners or random names. The archive has the layout of the OCI image specification, and a manifest.json
for `docker load`. The image has the binary as its entry point, a user without privileges (65532) and no other programs.
"""
import argparse
import gzip
import hashlib
import io
import json
import tarfile

USER = 65532
FILES = {
    "etc/passwd": f"root:x:0:0:root:/:/sbin/nologin\npointsman:x:{USER}:{USER}::/:/sbin/nologin\n",
    "etc/group": f"root:x:0:\npointsman:x:{USER}:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}


def full_name(name):
    """Returns the name with a registry and a tag. Kubernetes asks for an image by this name, and containerd does not complete the name of an archive."""
    registry, slash, _ = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif registry != "localhost" and not set(".:") & set(registry):
        name = f"docker.io/{name}"
    return name if ":" in name.rsplit("/", 1)[-1] else name + ":latest"


def entry(name, size=0, mode=0o644, kind=tarfile.REGTYPE):
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.type = size, mode, kind
    return info


def layer(binary):
    """Returns the uncompressed layer."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        archive.addfile(entry("etc", mode=0o755, kind=tarfile.DIRTYPE))
        for name, text in sorted(FILES.items()):
            data = text.encode()
            archive.addfile(entry(name, len(data)), io.BytesIO(data))
        archive.addfile(entry("tmp", mode=0o1777, kind=tarfile.DIRTYPE))
        archive.addfile(entry("pointsman", len(binary), 0o755), io.BytesIO(binary))
    return out.getvalue()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("out")
    parser.add_argument("name")
    parser.add_argument("--arch", default="amd64")
    parser.add_argument("--version", default="")
    arguments = parser.parse_args()
    name = full_name(arguments.name)

    blobs = {}

    def blob(data, media_type):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    def document(value, media_type):
        return blob(json.dumps(value, sort_keys=True).encode(), media_type)

    with open(arguments.binary, "rb") as file:
        content = layer(file.read())
    platform = {"architecture": arguments.arch, "os": "linux"}
    labels = {
        "org.opencontainers.image.title": "pointsman",
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.version": arguments.version,
    }
    layer_blob = blob(gzip.compress(content, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip")
    config = document(
        {
            **platform,
            "config": {
                "User": f"{USER}:{USER}",
                "Entrypoint": ["/pointsman"],
                "WorkingDir": "/",
                "Labels": {key: value for key, value in labels.items() if value},
            },
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(content).hexdigest()]},
            "history": [{"created_by": "scripts/image"}],
        },
        "application/vnd.oci.image.config.v1+json",
    )
    manifest = document(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": [layer_blob],
        },
        "application/vnd.oci.image.manifest.v1+json",
    )
    annotations = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rsplit(":", 1)[-1],
    }
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{**manifest, "platform": platform, "annotations": annotations}],
    }
    path = lambda one: "blobs/sha256/" + one["digest"].removeprefix("sha256:")
    legacy = [{"Config": path(config), "RepoTags": [name], "Layers": [path(layer_blob)]}]
    files = {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps(index, sort_keys=True).encode(),
        "manifest.json": json.dumps(legacy, sort_keys=True).encode(),
        **{"blobs/sha256/" + digest: data for digest, data in blobs.items()},
    }
    with tarfile.open(arguments.out, "w", format=tarfile.USTAR_FORMAT) as archive:
        for directory in ("blobs", "blobs/sha256"):
            archive.addfile(entry(directory, mode=0o755, kind=tarfile.DIRTYPE))
        for file, data in sorted(files.items()):
            archive.addfile(entry(file, len(data)), io.BytesIO(data))
    print(f"{arguments.out}: {name}, {manifest['digest']}, {sum(map(len, blobs.values()))} bytes")


main()
