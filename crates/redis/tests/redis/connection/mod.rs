mod connections;
mod credentials;
