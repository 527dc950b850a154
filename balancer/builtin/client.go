package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quellhq/quell"
)

// Client is the driver of a balancer that runs in another process. It uses the balancer's admin socket. Its methods may be called
// concurrently.
type Client struct {
	socket string
	http   *http.Client
	owner  atomic.Pointer[quell.Owner] // the controller that sends the lists; nil: a person sends them
}

// NewClient returns a driver for the balancer with the admin socket at this path (Options.Admin). Every call opens a
// new connection, so it also works after the balancer was restarted.
func NewClient(socketPath string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return dialLocal(ctx, socketPath) }
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	return &Client{socket: socketPath, http: &http.Client{Transport: transport}}
}

// A local socket refuses a connection while its queue is full, where TCP would let it wait: crowded is for how long it is tried again.
const (
	crowded = time.Second
	again   = 10 * time.Millisecond
)

func dialLocal(ctx context.Context, path string) (net.Conn, error) {
	for end := time.Now().Add(crowded); ; {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if !errors.Is(err, syscall.EAGAIN) || time.Now().After(end) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(again):
		}
	}
}

// Apply puts exactly these backends in force, or changes nothing and returns an error.
func (c *Client) Apply(ctx context.Context, backends []quell.Backend) error {
	if err := checkBackends(backends); err != nil {
		return err
	}
	return c.put(ctx, "/backends", append([]quell.Backend{}, backends...)) // send an empty list, not null
}

// Own makes a controller the balancer's owner, or renews its lease. Later lists are sent in that controller's name. While another
// controller's lease is valid, Own fails with a *quell.OwnedError.
func (c *Client) Own(ctx context.Context, owner quell.Owner) error {
	if err := c.put(ctx, "/owner", owner); err != nil {
		return err
	}
	c.owner.Store(&owner)
	return nil
}

// Disown ends the owner's lease, so that another controller can take over at once.
func (c *Client) Disown(ctx context.Context) error {
	owner := c.owner.Swap(nil)
	if owner == nil {
		return nil
	}
	_, err := c.do(ctx, http.MethodDelete, "/owner/"+url.PathEscape(owner.ID), nil)
	return err
}

// Hold takes an instance out of rotation on behalf of a person: Apply does not put it back.
func (c *Client) Hold(ctx context.Context, id string) error {
	_, err := c.do(ctx, http.MethodPut, "/backends/"+url.PathEscape(id)+"/hold", nil)
	return err
}

// Release puts an instance back in rotation that a person took out at the balancer.
func (c *Client) Release(ctx context.Context, id string) error {
	_, err := c.do(ctx, http.MethodDelete, "/backends/"+url.PathEscape(id)+"/hold", nil)
	return err
}

// State returns the balancer's backends, including those that are still draining.
func (c *Client) State(ctx context.Context) ([]quell.BackendState, error) {
	s, err := c.Status(ctx)
	return s.Backends, err
}

// Status returns the balancer's whole status.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	data, err := c.do(ctx, http.MethodGet, "/state", nil)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("balancer at %s: %w", c.socket, err)
	}
	return s, nil
}

// SetScheduling changes the scheduling until the balancer's next restart.
func (c *Client) SetScheduling(ctx context.Context, s quell.Scheduling) error {
	return c.put(ctx, "/scheduling", schedulingBody{s})
}

func (c *Client) put(ctx context.Context, path string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("balancer at %s: %w", c.socket, err)
	}
	_, err = c.do(ctx, http.MethodPut, path, body)
	return err
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://balancer"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if owner := c.owner.Load(); owner != nil {
		req.Header.Set(ownerHeader, owner.ID)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, c.explain(err)
	}
	if resp.StatusCode >= 300 {
		return nil, fmt.Errorf("balancer at %s refused: %w", c.socket, refusal(resp.Status, data))
	}
	return data, nil
}

func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("balancer socket %s does not exist: is `quell balancer` running with it? (%w)", c.socket, fs.ErrNotExist)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nobody answers on balancer socket %s: start `quell balancer` again (%w)", c.socket, syscall.ECONNREFUSED)
	default:
		return fmt.Errorf("balancer at %s: %w", c.socket, err)
	}
}

func refusal(status string, data []byte) error {
	var e adminError
	switch {
	case json.Unmarshal(data, &e) != nil || e.Error == "":
		return errors.New(status)
	case e.Owned != nil:
		return e.Owned
	}
	return errors.New(e.Error)
}
