mod redirections;
mod sentinels;
mod topologies;
