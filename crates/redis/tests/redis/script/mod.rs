mod agreement;
mod expiry;
mod permits;
mod repairs;
mod shared_hash;
