//! Operations on the wire, connections that prove a secret, bulk headers and pieces.

use std::io::{Read, Write};
use std::net::TcpStream;

use causeway_proto::bulk::{HEADER, Header, Kind as Bulk};
use causeway_proto::command::*;
use causeway_proto::id::{EventId, SessionId, SessionSecret};
use causeway_proto::preamble::{
    ClientWord, GREETING, Greeting, Preamble, Purpose, Verdict, WORKER_PROOF, check_worker_proof,
    client_proof,
};
use causeway_proto::region::Region;
use prost::bytes::Bytes;

use super::LIMIT;

pub fn linear(offset: u64, length: u64) -> Region {
    Region::linear(offset, length).unwrap()
}

pub fn write(buffer: u64, region: Region, bytes: Option<&[u8]>) -> enqueue::Operation {
    enqueue::Operation::WriteBuffer(WriteBuffer {
        buffer,
        region: Some(region.to_wire()),
        contents: bytes.map(Bytes::copy_from_slice).unwrap_or_default(),
        bulk: bytes.is_none(),
        eager: false,
    })
}

pub fn read(buffer: u64, region: Region, bulk: bool) -> enqueue::Operation {
    enqueue::Operation::ReadBuffer(ReadBuffer {
        buffer,
        region: Some(region.to_wire()),
        bulk,
    })
}

pub fn launch(
    kernel: u64,
    args: Vec<kernel_arg::Value>,
    global: &[u64],
    local: &[u64],
) -> enqueue::Operation {
    enqueue::Operation::NdRange(NdRange {
        kernel,
        args: args
            .into_iter()
            .enumerate()
            .map(|(index, value)| KernelArg {
                index: index as u32,
                value: Some(value),
            })
            .collect(),
        global: global.to_vec(),
        offset: vec![],
        local: local.to_vec(),
        reaches: None,
    })
}

pub fn plain(bytes: &[u8]) -> kernel_arg::Value {
    kernel_arg::Value::Plain(Bytes::copy_from_slice(bytes))
}

pub fn memory(buffer: u64) -> kernel_arg::Value {
    kernel_arg::Value::Memory(buffer)
}

pub fn connect(
    address: &str,
    session: SessionId,
    secret: &SessionSecret,
    purpose: Purpose,
    lane: u8,
) -> TcpStream {
    let preamble = Preamble {
        purpose,
        lane,
        session,
        link: 0,
    };
    connect_as(address, &preamble, secret).unwrap()
}

/// Opens a connection and proves the secret. Returns the refusal, if any.
pub fn connect_as(
    address: &str,
    preamble: &Preamble,
    secret: &SessionSecret,
) -> Result<TcpStream, Verdict> {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    prove(socket, preamble, secret)
}

/// Proves the secret over an existing connection.
pub fn prove(
    socket: TcpStream,
    preamble: &Preamble,
    secret: &SessionSecret,
) -> Result<TcpStream, Verdict> {
    prove_with(socket, preamble, secret, &ClientWord::default()).map(|(socket, _)| socket)
}

/// As [`prove`], with the client's word. Returns the worker's position, too.
pub fn prove_with(
    socket: TcpStream,
    preamble: &Preamble,
    secret: &SessionSecret,
    word: &ClientWord,
) -> Result<(TcpStream, u64), Verdict> {
    try_to_prove(socket, preamble, secret, word).expect("the node answers")
}

/// As [`prove_with`]. The node may close the connection without an answer.
pub fn try_to_prove(
    mut socket: TcpStream,
    preamble: &Preamble,
    secret: &SessionSecret,
    word: &ClientWord,
) -> std::io::Result<Result<(TcpStream, u64), Verdict>> {
    socket.set_read_timeout(Some(LIMIT))?;
    let preamble = preamble.encode();
    socket.write_all(&preamble)?;
    let mut greeting = [0; GREETING];
    socket.read_exact(&mut greeting)?;
    let greeting = Greeting::decode(&greeting).unwrap();
    if greeting.verdict != Verdict::Welcome {
        return Ok(Err(greeting.verdict));
    }
    let ours = client_proof(secret, &preamble, &greeting.nonce, word);
    socket.write_all(&ours)?;
    let mut proof = [0; GREETING];
    socket.read_exact(&mut proof[..WORKER_PROOF])?;
    let theirs = std::array::from_fn(|i| proof[i]);
    let position = check_worker_proof(secret, &preamble, &greeting.nonce, &ours, &theirs);
    Ok(match position {
        Some(position) => Ok((socket, position)),
        None => Err(Greeting::decode(&proof).unwrap().verdict),
    })
}

/// Reads one bulk header.
pub fn bulk_header(lane: &mut TcpStream) -> Header {
    let mut bytes = [0; HEADER];
    lane.read_exact(&mut bytes).expect("a bulk header");
    Header::decode(&bytes).unwrap()
}

/// Sends a piece of a transfer's bytes.
pub fn bulk_data(lane: &mut TcpStream, transfer: u64, offset: u64, bytes: &[u8]) {
    bulk_piece(lane, Bulk::Data, transfer, offset, bytes);
}

/// Sends a piece of any kind that contains bytes.
pub fn bulk_piece(lane: &mut TcpStream, kind: Bulk, transfer: u64, offset: u64, bytes: &[u8]) {
    let header = Header {
        kind,
        transfer: EventId(transfer),
        offset,
        length: bytes.len() as u32,
    };
    lane.write_all(&header.encode()).unwrap();
    lane.write_all(bytes).unwrap();
}
