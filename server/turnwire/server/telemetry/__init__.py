"""What a server tells its operator: metrics, the port they are read from, and logs."""
