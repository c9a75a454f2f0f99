"""The client: sessions, responses and lanes over one gRPC stream."""
