//! The codec of the device manager's calls: protobuf, with small initial buffers.
//!
//! The manager keeps a stream open for each node and for each waiting request, thousands at a time. tonic
//! allocates a buffer for each direction of a stream when it opens. Larger messages grow the buffer.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

/// Initial buffer size in bytes. Nearly all messages fit.
const FIRST: usize = 512;
/// Number of encoded bytes at which a buffer is sent without waiting for more messages. This is tonic's
/// default.
const ENOUGH: usize = 32 << 10;

/// A codec with small initial buffers; see the module.
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
