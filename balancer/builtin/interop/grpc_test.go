package interop

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/quellhq/quell/balancer/builtin"
)

// instance starts a server of gRPC's interoperability tests without TLS.
func instance(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	testpb.RegisterTestServiceServer(server, interop.NewTestServer())
	go server.Serve(ln)
	t.Cleanup(server.Stop)
	return ln.Addr().String()
}

// TestGRPC runs the cases of grpc-go's interoperability client through the balancer. A case that fails ends the test's process.
func TestGRPC(t *testing.T) {
	files, trusts := certificate(t)
	for name, c := range map[string]struct {
		files *builtin.TLS
		with  credentials.TransportCredentials
	}{
		"without TLS": {nil, insecure.NewCredentials()},
		"with TLS":    {files, credentials.NewTLS(trusts)},
	} {
		t.Run(name, func(t *testing.T) {
			address := balance(t, builtin.Options{TLS: c.files, Upstream: builtin.H2C}, instance(t), instance(t))
			conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(c.with))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for _, play := range grpcCases(conn) {
				t.Log(play.name)
				play.run(ctx)
			}
		})
	}
}

// A call's status without an answer comes in a header that also ends the stream. If a proxy flushes the header before the end, which
// depends on the moment, the client takes the call for broken.
func TestAStatusWithoutAnAnswer(t *testing.T) {
	address := balance(t, builtin.Options{Upstream: builtin.H2C}, instance(t))
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := testpb.NewTestServiceClient(conn)
	ask := &testpb.SimpleRequest{ResponseStatus: &testpb.EchoStatus{Code: int32(codes.DataLoss), Message: "told"}}
	for range 1000 {
		if _, err := client.UnaryCall(t.Context(), ask); status.Code(err) != codes.DataLoss {
			t.Fatal(err)
		}
	}
}

type grpcCase struct {
	name string
	run  func(context.Context)
}

func grpcCases(conn *grpc.ClientConn) []grpcCase {
	client := testpb.NewTestServiceClient(conn)
	on := func(name string, do func(context.Context, testpb.TestServiceClient, ...grpc.CallOption)) grpcCase {
		return grpcCase{name, func(ctx context.Context) { do(ctx, client) }}
	}
	return []grpcCase{
		on("empty_unary", interop.DoEmptyUnaryCall), on("large_unary", interop.DoLargeUnaryCall),
		on("client_streaming", interop.DoClientStreaming), on("server_streaming", interop.DoServerStreaming),
		on("ping_pong", interop.DoPingPong), on("empty_stream", interop.DoEmptyStream),
		on("timeout_on_sleeping_server", interop.DoTimeoutOnSleepingServer),
		on("cancel_after_begin", interop.DoCancelAfterBegin), on("cancel_after_first_response", interop.DoCancelAfterFirstResponse),
		on("custom_metadata", interop.DoCustomMetadata), on("status_code_and_message", interop.DoStatusCodeAndMessage),
		on("special_status_message", interop.DoSpecialStatusMessage),
		{"unimplemented_method", func(ctx context.Context) { interop.DoUnimplementedMethod(ctx, conn) }},
		{"unimplemented_service", func(ctx context.Context) {
			interop.DoUnimplementedService(ctx, testpb.NewUnimplementedServiceClient(conn))
		}},
	}
}
