// Package interop tests the built-in balancer with HTTP/2 peers that are not Go's net/http: grpc-go's own interoperability client and
// server, and single frames. It is a module of its own, so that Quell does not depend on gRPC.
package interop
