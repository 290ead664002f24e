mod agreement;
mod expiry;
mod permits;
mod refusals;
mod repairs;
mod shared_hash;
mod versions;
