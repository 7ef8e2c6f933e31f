//! Bulk bytes between sockets and devices.
use std::net::TcpStream;
use std::sync::Arc;

use causeway_proto::region::Region;
use causeway_proto::status::Status;

use crate::runtime::event::WaitList;
use crate::worker::session::Shared;
use crate::worker::session::enqueue::Task;
use crate::worker::session::objects::Memory;

#[derive(Default)]
pub(crate) struct Engine;

impl Engine {
    pub(crate) fn give_up(&self, _task: &Task) {}
    pub(crate) fn attach(&self, _shared: &Arc<Shared>, _lane: u8, _socket: TcpStream) {}
    pub(crate) fn stop(&self) {}
}

pub(crate) fn write(
    _: &Arc<Shared>,
    _: &Task,
    _: &Arc<Memory>,
    _: Region,
    _: &WaitList<'_>,
) -> Result<(), Status> {
    Err(Status::INVALID_OPERATION)
}

pub(crate) fn read(
    _: &Arc<Shared>,
    _: &Task,
    _: &Arc<Memory>,
    _: Region,
    _: &WaitList<'_>,
) -> Result<(), Status> {
    Err(Status::INVALID_OPERATION)
}
