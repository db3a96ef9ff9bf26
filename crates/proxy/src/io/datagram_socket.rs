//! UDP sockets that may be bound to the wildcard address. The kernel reports the destination address of each datagram, and is given the source address of the
//! reply (`IP_PKTINFO`, ip(7); `IPV6_RECVPKTINFO`, RFC 3542 §6.2). Otherwise it would choose one itself, and the client would not recognize the reply.

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

use nix::libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// A UDP socket that receives from many clients.
#[derive(Debug)]
pub(crate) struct DatagramSocket {
    socket: UdpSocket,
    /// Space for control messages, if the socket is bound to the wildcard address.
    control: Option<RefCell<Vec<u8>>>,
}

impl DatagramSocket {
    /// Wraps a socket that is bound to this address.
    pub(crate) fn new(socket: UdpSocket, address: IpAddr) -> io::Result<Self> {
        if address.is_unspecified() {
            match address {
                IpAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?,
                IpAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?,
            }
        }
        let control = address.is_unspecified();
        Ok(DatagramSocket {
            socket,
            control: control.then(|| RefCell::new(nix::cmsg_space!(in6_pktinfo))),
        })
    }

    pub(crate) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Receives a datagram, without waiting. Returns its length, its sender and, on a wildcard socket, its destination address.
    pub(crate) fn try_receive(
        &self,
        buf: &mut [u8],
    ) -> io::Result<(usize, SocketAddr, Option<IpAddr>)> {
        match &self.control {
            None => {
                let (count, client) = self.socket.try_recv_from(buf)?;
                Ok((count, client, None))
            }
            Some(control) => self.socket.try_io(Interest::READABLE, || {
                receive(&self.socket, buf, &mut control.borrow_mut())
            }),
        }
    }

    /// Sends a datagram, without waiting for buffer space. `from` is the source address, if the kernel is not to choose it.
    pub(crate) fn send(
        &self,
        bytes: &[u8],
        client: SocketAddr,
        from: Option<IpAddr>,
    ) -> io::Result<usize> {
        let send = |control: &[ControlMessage<'_>]| {
            let (bytes, to) = ([IoSlice::new(bytes)], SockaddrStorage::from(client));
            let flags = MsgFlags::MSG_DONTWAIT;
            let sent = sendmsg(self.socket.as_raw_fd(), &bytes, control, flags, Some(&to));
            sent.map_err(io::Error::from)
        };
        match from {
            None => SockRef::from(&self.socket).send_to(bytes, &client.into()),
            Some(IpAddr::V4(address)) => {
                let (address, none) = (address.octets(), in_addr { s_addr: 0 });
                send(&[ControlMessage::Ipv4PacketInfo(&in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: in_addr {
                        s_addr: u32::from_ne_bytes(address),
                    },
                    ipi_addr: none,
                })])
            }
            Some(IpAddr::V6(address)) => {
                let s6_addr = address.octets();
                send(&[ControlMessage::Ipv6PacketInfo(&in6_pktinfo {
                    ipi6_addr: in6_addr { s6_addr },
                    ipi6_ifindex: 0,
                })])
            }
        }
    }
}

fn receive(
    socket: &UdpSocket,
    buf: &mut [u8],
    control: &mut [u8],
) -> io::Result<(usize, SocketAddr, Option<IpAddr>)> {
    let (mut slices, flags) = ([IoSliceMut::new(buf)], MsgFlags::MSG_DONTWAIT);
    let received =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(control), flags)?;
    let sender = received.address.as_ref().and_then(|address| {
        let v4 = address.as_sockaddr_in();
        let v4 = v4.map(|address| SocketAddr::V4((*address).into()));
        let v6 = address.as_sockaddr_in6();
        v4.or(v6.map(|address| SocketAddr::V6((*address).into())))
    });
    let sender = sender.ok_or(io::ErrorKind::InvalidData)?;
    let sent_to = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            let octets = info.ipi_spec_dst.s_addr.to_ne_bytes();
            Some(IpAddr::V4(Ipv4Addr::from(octets)))
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => {
            Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)))
        }
        _ => None,
    });
    Ok((received.bytes, sender, sent_to))
}
