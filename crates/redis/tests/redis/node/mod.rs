mod write_failures;
