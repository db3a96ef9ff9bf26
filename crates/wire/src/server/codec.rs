//! Codec of the streams of proxies. A thousand proxies have two thousand streams, so the buffers of a stream start small and grow with its messages.

use std::marker::PhantomData;

use bytes::{Buf, Bytes};
use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::ProstCodec;

/// Initial size of a buffer.
const BUFFER: usize = 512;

/// Bytes of encoded messages that are sent together.
const YIELD_THRESHOLD: usize = 32 * 1024;

/// Size of a message that a proxy sends rarely, such as the summary of its configuration.
const LARGE_MESSAGE: usize = 4 * 1024;

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
    type Decoder = StreamDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(settings())
    }

    fn decoder(&mut self) -> Self::Decoder {
        StreamDecoder {
            large: None,
            message: PhantomData,
        }
    }
}

/// Decodes messages without retaining a large buffer: the first message of a reconnecting proxy is by far the largest.
pub struct StreamDecoder<U> {
    /// The last message, if it was large. While it is held, the stream can't reuse its buffer, and allocates a new one for the next message.
    large: Option<Bytes>,
    message: PhantomData<U>,
}

impl<U: Message + Default> Decoder for StreamDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let bytes = source.copy_to_bytes(source.remaining());
        self.large = (bytes.len() >= LARGE_MESSAGE).then(|| bytes.clone());
        let message = U::decode(bytes);
        let message = message.map_err(|error| Status::internal(error.to_string()))?;
        Ok(Some(message))
    }

    fn buffer_settings(&self) -> BufferSettings {
        settings()
    }
}
