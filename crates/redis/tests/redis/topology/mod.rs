mod redirections;
mod sentinels;
mod split_permits;
mod split_reservations;
mod topologies;
