mod agreement;
mod expiry;
mod repairs;
mod shared_hash;
