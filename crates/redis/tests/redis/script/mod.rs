mod agreement;
mod expiry;
mod permits;
mod portable;
mod refusals;
mod repairs;
mod shared_hash;
mod versions;
