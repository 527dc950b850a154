package page

import (
	"crypto/rand"
	"maps"
	"sync"
	"time"
)

const (
	ticketLife  = 5 * time.Minute
	sessionLife = 12 * time.Hour
	mostHeld    = 64 // tickets, and log-ins
)

// grants are secrets with their holders, each good for some time. The zero value is ready.
type grants struct {
	mu   sync.Mutex
	held map[string]grant
}

type grant struct {
	by    string // who may act with it, as the bus names the holder of the operator's credential
	valid Valid
	until time.Time
}

// Valid returns whether the credential is still valid with which somebody asked for a log-in.
type Valid func(now time.Time) bool

// issue makes a secret. If there are too many, the one that ends first is dropped.
func (g *grants) issue(by string, valid Valid, now time.Time, life time.Duration) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(now)
	if len(g.held) >= mostHeld {
		first, until := "", time.Time{}
		for secret, x := range g.held {
			if first == "" || x.until.Before(until) {
				first, until = secret, x.until
			}
		}
		delete(g.held, first)
	}
	if g.held == nil {
		g.held = map[string]grant{}
	}
	secret := rand.Text() + rand.Text()
	g.held[secret] = grant{by, valid, now.Add(life)}
	return secret
}

// find returns what a secret is good for. once: the secret is not good again.
func (g *grants) find(secret string, now time.Time, once bool) (x grant, ok bool) {
	if x, ok = g.look(secret, now, once); !ok || !x.valid(now) {
		return grant{}, false
	}
	return x, true
}

func (g *grants) look(secret string, now time.Time, once bool) (x grant, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(now)
	x, ok = g.held[secret]
	if ok && once {
		delete(g.held, secret)
	}
	return x, ok
}

func (g *grants) drop(secret string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.held, secret)
}

func (g *grants) expire(now time.Time) {
	maps.DeleteFunc(g.held, func(_ string, x grant) bool { return !now.Before(x.until) })
}
