mod contract;
mod examiner;
mod runtimes;
