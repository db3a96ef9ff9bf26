//! Address requests, addresses of Services, and workloads.

use pointsman_binding::bound::{AddressRequest, ServiceAddresses, Workload};
use pointsman_resources::Name;

use crate::error::{DecodeError, convert_optional, parse, parse_ips, to_u16};
use crate::name::decode_age;
use crate::proto;

impl From<&AddressRequest> for proto::AddressRequest {
    fn from(request: &AddressRequest) -> Self {
        let AddressRequest {
            gateway: _,
            proxy,
            age,
            addresses,
            any,
            invalid,
        } = request;
        proto::AddressRequest {
            proxy: proxy.as_ref().map(Into::into),
            age: Some((*age).into()),
            addresses: addresses.iter().map(ToString::to_string).collect(),
            any: *any,
            invalid: invalid.clone(),
        }
    }
}

impl proto::AddressRequest {
    /// Decodes the request of this Gateway.
    pub(crate) fn with_id(self, gateway: Name) -> Result<AddressRequest, DecodeError> {
        Ok(AddressRequest {
            gateway,
            proxy: convert_optional(self.proxy)?,
            age: decode_age(self.age)?,
            addresses: parse_ips(&self.addresses, "AddressRequest.addresses")?,
            any: self.any,
            invalid: self.invalid,
        })
    }
}

impl From<&ServiceAddresses> for proto::ServiceAddresses {
    fn from(service: &ServiceAddresses) -> Self {
        let ports = service.ports.iter();
        let ports = ports.map(|&(port, transport)| proto::ServicePort {
            port: port.into(),
            transport: proto::Transport::from(transport).into(),
        });
        proto::ServiceAddresses {
            addresses: service.addresses.iter().map(ToString::to_string).collect(),
            ports: ports.collect(),
        }
    }
}

impl TryFrom<proto::ServiceAddresses> for ServiceAddresses {
    type Error = DecodeError;

    fn try_from(service: proto::ServiceAddresses) -> Result<Self, DecodeError> {
        let ports = service.ports.iter().map(|port| {
            Ok((
                to_u16(port.port, "ServicePort.port")?,
                port.transport().try_into()?,
            ))
        });
        Ok(ServiceAddresses {
            addresses: parse_ips(&service.addresses, "ServiceAddresses.addresses")?,
            ports: ports.collect::<Result<_, DecodeError>>()?,
        })
    }
}

impl From<&Workload> for proto::Workload {
    fn from(workload: &Workload) -> Self {
        proto::Workload {
            address: workload.address.map(|address| address.to_string()),
            age: Some(workload.age.into()),
        }
    }
}

impl TryFrom<proto::Workload> for Workload {
    type Error = DecodeError;

    fn try_from(workload: proto::Workload) -> Result<Self, DecodeError> {
        let address = workload.address.as_deref();
        let address = address.map(|text| parse(text, "Workload.address", "an IP address"));
        Ok(Workload {
            address: address.transpose()?,
            age: decode_age(workload.age)?,
        })
    }
}
