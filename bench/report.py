"""The figures as tables and as a picture."""

import statistics
from html import escape


def median(windows, key):
    values = [window[key] for window in windows]
    return statistics.median(values) if values else None


def short(value):
    """Three digits are as many as such a measurement has."""
    if value is None:
        return "–"
    for limit, divisor, suffix in ((1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= limit:
            return f"{value / divisor:.3g}{suffix}"
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def ratios(cases, names, results, key):
    """{case: {contestant: times Envoy}}; absolute where there is no Envoy."""
    made = {}
    for case in cases:
        medians = {name: median(results[case.name][name], key) for name in names}
        base = medians.get("Envoy")
        made[case.name] = {name: value / base if base and value else None for name, value in medians.items()}
    return made


def rate_table(cases, names, results, key, per):
    rows = []
    times = ratios(cases, names, results, key)
    for case in cases:
        row = [case.title]
        for name in names:
            value = median(results[case.name][name], key)
            ratio = times[case.name][name]
            if value is None:
                row.append("–")
            elif name == "Envoy" or ratio is None:
                row.append(f"{'1 ' if ratio else ''}({short(value)} {case.unit})")
            else:
                row.append(f"{ratio:.2f}")
        rows.append(row)
    return table([f"{per}, Envoy = 1", *names], rows)


def latency_table(names, windows):
    rows = []
    for percent in ("50", "99"):
        row = [f"p{percent}, µs"]
        for name in names:
            values = [window["latency"][percent] for window in windows[name] if percent in window["latency"]]
            row.append(short(statistics.median(values)) if values else "–")
        rows.append(row)
    return table(["one connection", *names], rows)


def against_baseline(cases, results):
    """Ratios of Pointsman to an older Pointsman of the same run; below 1 is a regression."""
    rows = []
    for case in cases:
        row = [case.title]
        for key in ("per_cpu", "rate"):
            now, before = (median(results[case.name][name], key) for name in ("Pointsman", "baseline"))
            row.append(f"{now / before:.3f}" if now and before else "–")
        rows.append(row)
    return "## Pointsman against the baseline\n\n" + table(["baseline = 1", "per CPU-second", "per second"], rows) + "\n"


def text(settings, cases, names, figures):
    parts = [
        "# Pointsman beside others\n",
        "Written by `bench/compare`, with the picture beside it. One worker of each on one core, the load and a bare backend on the other; all contestants take turns, window by "
        "window. Only ratios within one run mean anything: another machine gives other figures.\n",
        f"{settings}\n",
        "![work per CPU-second](compare.svg)\n",
    ]
    results = figures.get("rates")
    if results:
        parts += ["## Work per second of the proxy's processor time\n", rate_table(cases, names, results, "per_cpu", "per CPU-second") + "\n"]
        parts += ["## Work per second\n", rate_table(cases, names, results, "rate", "per second") + "\n"]
        if "latency" in results:
            parts += ["## Latency\n", latency_table(names, results["latency"]) + "\n"]
        windows = [window for case in results.values() for one in case.values() for window in one]
        disturbed = sum(window["disturbed"] for window in windows)
        said = "Nothing else ran on the machine." if not disturbed else f"Something else took more than a tenth of a core in {disturbed} of {len(windows)} windows."
        parts.append(said + "\n")
    if "memory" in figures:
        rows = [["resident when idle, MiB", *(short(figures["memory"][name]["idle"]) if name in figures["memory"] else "–" for name in names)]]
        for kind, title in (("http1", "HTTP/1"), ("http2", "HTTP/2"), ("tls", "TLS")):
            rows.append([f"KiB per idle {title} connection", *(short(figures["memory"].get(name, {}).get(kind)) for name in names)])
        parts += ["## Memory\n", table(["", *names], rows) + "\n"]
    if "many" in figures:
        rows = []
        for kind, title in (("paths", "5,000 paths of one host"), ("hosts", "5,000 hosts")):
            kept, memory = [], []
            for name in names:
                row = figures["many"].get(name)
                kept.append(f"{row[kind] / row['one']:.2f}" if row else "–")
                memory.append(short(row[f"{kind}-memory"]) if row else "–")
            rows += [[f"{title}: throughput kept", *kept], [f"{title}: resident MiB", *memory]]
        parts += ["## 5,000 routes, the last of them asked for (HAProxy: a map)\n", table(["", *names], rows) + "\n"]
    if "propagation" in figures:
        rows = []
        for routes in (0, 1000, 5000):
            rows.append([f"at {routes:,}", *(short(figures["propagation"].get(name, {}).get(routes)) for name in names)])
        parts += ["## One more route: milliseconds until a request follows it, p50\n",
                  "Pointsman: a file more in its folder. Envoy: RDS from a file. nginx, HAProxy: a reload.\n", table(["", *names], rows) + "\n"]
    if "churn" in figures:
        rows = []
        for kind, title in (("requests", "throughput kept"), ("requests-per-cpu", "throughput per CPU-second kept")):
            kept = (figures["churn"].get(name, {}).get(kind) for name in names)
            rows.append([title, *(f"{value:.2f}" if value else "–" for value in kept)])
        parts += ["## 5,000 routes, endpoints change 200 times a second\n", table(["", *names], rows) + "\n"]
    return "\n".join(parts)


COLOURS = {"Envoy": "#9aa5b1", "HAProxy": "#7b8794", "nginx": "#52606d", "plain hyper": "#c9a227", "Pointsman": "#1f7a5c"}


def picture(cases, names, results):
    """A bar for each contestant and case: work per CPU-second, Envoy = 1."""
    times = ratios(cases, names, results, "per_cpu")
    most = max((value for case in times.values() for value in case.values() if value), default=1)
    bar, gap, left, width = 11, 16, 250, 520
    scale = width / most
    height = 50 + len(cases) * (len(names) * bar + gap) + 10
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 70}" height="{height}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>']
    x = 10
    for name in names:
        out.append(f'<rect x="{x}" y="12" width="12" height="12" fill="{COLOURS.get(name, "#333")}"/><text x="{x + 17}" y="22">{escape(name)}</text>')
        x += 30 + 8 * len(name) + 10
    out.append(f'<text x="{x + 10}" y="22" fill="#777">work per CPU-second, Envoy = 1</text>')
    y = 44
    for case in cases:
        out.append(f'<text x="{left - 8}" y="{y + len(names) * bar / 2 + 4}" text-anchor="end">{escape(case.title)}</text>')
        for name in names:
            value = times[case.name][name]
            if value:
                out.append(f'<rect x="{left}" y="{y}" width="{value * scale:.1f}" height="{bar - 2}" fill="{COLOURS.get(name, "#333")}"/>'
                           f'<text x="{left + value * scale + 4:.1f}" y="{y + bar - 3}" font-size="9" fill="#555">{value:.2f}</text>')
            y += bar
        y += gap
    out.append(f'<line x1="{left + scale:.1f}" y1="36" x2="{left + scale:.1f}" y2="{height - 10}" stroke="#bbb" stroke-dasharray="3 3"/>')
    return "\n".join([*out, "</svg>\n"])
