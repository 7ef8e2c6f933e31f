//! `causeway-devmgr` as others meet it: its process, its port, its store. Nodes are played by
//! [`node::FakeNode`], which speaks the real wire and watches that nothing is granted twice. [`tool`]: what
//! administrators and users do with it, by the tool.

mod considering;
mod crowds;
mod encrypted;
mod ending;
mod first_admin;
mod forgetting;
mod granting;
mod in_process;
mod insecure;
mod kinds;
mod logs;
mod lost_store;
mod node;
mod orders;
mod process;
mod queue;
mod quickstart;
mod racing;
mod reaching;
mod real_node;
mod reducing;
mod restarts;
mod samples;
mod slow_store;
mod stopping;
mod store_failure;
mod store_orders;
mod strangers;
mod tool;
mod watching;
