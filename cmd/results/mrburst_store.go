package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/quellhq/quell/lab/testbed/kernel"
)

// storeSession is a user's connection with an object store, over which he asks for one object after the other.
type storeSession struct {
	ctx    context.Context // its end breaks off downloads
	base   string          // URL of the bucket
	client *http.Client
	signer *v4.Signer
}

// loginStore prepares for the first request to an object store.
func loginStore(u *burstUsers, address string) (burstSession, error) {
	return newStoreSession(u.ctx, address, u.dial), nil
}

func newStoreSession(ctx context.Context, address string, dial func(address string) (net.Conn, error)) *storeSession {
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return dial(address) }}
	return &storeSession{ctx: ctx, base: "http://" + address + "/" + kernel.StoreBucket + "/",
		client: &http.Client{Transport: transport, Timeout: burstPatience}, signer: v4.NewSigner()}
}

func (s *storeSession) get(object string) error {
	request, err := http.NewRequestWithContext(s.ctx, http.MethodGet, s.base+object, nil)
	if err != nil {
		return err
	}
	const unsigned = "UNSIGNED-PAYLOAD"
	request.Header.Set("X-Amz-Content-Sha256", unsigned)
	who := aws.Credentials{AccessKeyID: kernel.StoreUser, SecretAccessKey: kernel.StoreSecret}
	if err := s.signer.SignHTTP(s.ctx, who, request, unsigned, "s3", kernel.StoreRegion, time.Now()); err != nil {
		return err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("%s: %w", object, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", object, response.Status)
	}
	return nil
}

func (s *storeSession) close() { s.client.CloseIdleConnections() }
