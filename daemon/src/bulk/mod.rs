//! Bulk bytes between sockets and devices.
