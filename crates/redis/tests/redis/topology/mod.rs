mod redirections;
mod sentinels;
mod split_permits;
mod topologies;
