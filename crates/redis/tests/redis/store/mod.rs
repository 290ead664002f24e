mod contract;
mod runtimes;
