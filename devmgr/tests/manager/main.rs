//! `causeway-devmgr` as others meet it: its process, its port, its store. Nodes are played by
//! [`node::FakeNode`], which speaks the real wire and watches that nothing is granted twice.

mod encrypted;
mod ending;
mod granting;
mod node;
mod process;
mod queue;
mod racing;
mod real_node;
mod restarts;
mod samples;
mod store_failure;
mod strangers;
mod watching;
