mod agreement;
mod expiry;
mod repairs;
