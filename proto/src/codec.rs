//! The codec of the device manager's calls: protobuf, with buffers that start small.
//!
//! It keeps a stream open for each node and for each request that waits, thousands at a time, and tonic gives each
//! direction of a stream a buffer when it opens. Messages that are larger than that grow it.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

/// Bytes at first: nearly all messages fit.
const FIRST: usize = 512;
/// Bytes of messages that are ready, at which they are sent without looking for more; tonic's own figure.
const ENOUGH: usize = 32 << 10;

/// See the module.
#[derive(Debug)]
pub struct SmallBuffers<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SmallBuffers<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for SmallBuffers<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = <ProstCodec<T, U> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(FIRST, ENOUGH))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(FIRST, ENOUGH))
    }
}
