//! Codec of the streams of proxies. A thousand proxies have two thousand streams, so the buffers of a stream start small and grow with its messages.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

/// Initial size of a buffer.
const BUFFER: usize = 512;

/// Bytes of encoded messages that are sent together.
const YIELD_THRESHOLD: usize = 32 * 1024;

/// Encodes `T` and decodes `U`.
pub struct StreamCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for StreamCodec<T, U> {
    fn default() -> Self {
        StreamCodec(PhantomData)
    }
}

fn settings() -> BufferSettings {
    BufferSettings::new(BUFFER, YIELD_THRESHOLD)
}

impl<T, U> Codec for StreamCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = <ProstCodec<T, U> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(settings())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(settings())
    }
}
