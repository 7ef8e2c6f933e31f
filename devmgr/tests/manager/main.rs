//! `causeway-devmgr` from outside: its process, its port, its store. [`node::FakeNode`] speaks the real
//! wire, and checks that nothing is granted twice. [`tool`]: the commands of administrators and users.
//! [`etcd::Cluster`]: real members of etcd, as child processes.
//! [`dashboard`]: the pages for browsers, with a plain client and with Chromium.

mod considering;
mod crowds;
mod dashboard;
mod encrypted;
mod ending;
mod etcd;
mod etcd_login;
mod etcd_offline;
mod etcd_store;
mod etcd_trouble;
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
mod other_cluster;
mod process;
mod queue;
mod quickstart;
mod racing;
mod reaching;
mod real_node;
mod reducing;
mod replacing;
mod restarts;
mod samples;
mod several;
mod slow_member;
mod slow_store;
mod stopping;
mod store_failure;
mod store_orders;
mod strangers;
mod tool;
mod watching;
