// Package auth says who may connect to the bus, and with which rights: roles, the keyring that signs credentials, and the authenticator
// of an embedded server.
package auth

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/quellhq/quell/bus/subjects"
	"github.com/quellhq/quell/internal/terminal"
)

// Role determines what a credential allows.
type Role string

// Roles of credentials. Grant.subjects lists what each role may publish and receive.
const (
	Sensor     Role = "sensor"     // publish its own readings, receive and answer its own orders
	Balancer   Role = "balancer"   // publish readings of every instance, in its own name; receive its backends
	Controller Role = "controller" // everything
	Operator   Role = "operator"   // send the controller every command
	Leaf       Role = "leaf"       // forward messages of agents and balancers between a leaf node and an external NATS
	Join       Role = "join"       // ask for the credential of a sensor, and nothing else; see Token
	Prove      Role = "prove"      // ask for it with a proof of the platform; its id is the kind of the proof. See Authenticator.AcceptProofs
	Shared     Role = "token"      // a token that all processes share, as was usual before roles existed: readings and status
)

// Roles lists the roles that a person can make a credential for. A join token is made by MakeToken.
var Roles = []Role{Sensor, Balancer, Controller, Operator, Leaf, Prove}

// Grant is a role with its holder: the instance of a sensor, or the name of a balancer or of a person.
type Grant struct {
	Role    Role
	Service string
	ID      string
}

func (g Grant) String() string { return string(g.Role) + " " + g.ID }

// MaxID is the largest length of a name that a person reads, in bytes.
const MaxID = 64

func (g Grant) check() error {
	if !slices.Contains(Roles, g.Role) && g.Role != Join {
		return fault("unknown role %q; there are %s", g.Role, roleNames())
	}
	if g.ID == "" {
		return fault("a credential of role %s needs an id", g.Role)
	}
	longest := MaxID
	if g.Role == Sensor {
		longest = subjects.MaxInstance
	}
	if _, err := subjects.Token(string(g.Role), g.ID, longest); err != nil {
		return err
	}
	if strings.ContainsFunc(g.ID, func(r rune) bool { return !terminal.Shown(r) }) {
		return fault("the id %q contains characters that cannot be printed", g.ID)
	}
	_, err := subjects.Service(g.Service)
	return err
}

func roleNames() string {
	names := make([]string, len(Roles))
	for i, r := range Roles {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}

// Inside is whoever runs the embedded bus.
var Inside = Grant{Role: Controller, ID: "controller"}

// SharedGrant is the grant of a shared token.
func SharedGrant() Grant { return Grant{Role: Shared, ID: "shared"} }

// rights are the subjects that a role may publish and subscribe to. All others are denied.
type rights struct{ publish, subscribe []string }

// subjects returns what a grant allows. Only controllers may use JetStream's own subjects, which give access to the streams of journal,
// state and lease.
func (g Grant) subjects() rights {
	svc, id := "quell."+subjects.Escape(g.Service), subjects.Escape(g.ID)
	inbox := g.Inbox() + ".>"
	switch g.Role {
	case Sensor:
		return rights{[]string{svc + ".reading.agent." + id, svc + ".answer." + id + ".*", svc + ".renew." + id},
			[]string{svc + ".agent." + id + ".>", inbox}}
	case Join, Prove:
		return rights{[]string{svc + "." + string(g.Role) + "." + id}, []string{inbox}}
	case Balancer:
		return rights{[]string{svc + ".reading.balancer.*." + id, svc + ".reading.prober.*." + id},
			[]string{svc + ".balancer." + id + ".>", inbox}}
	case Operator:
		return rights{[]string{svc + ".command.operator." + id, svc + ".history.operator." + id}, []string{inbox}}
	case Leaf:
		return rights{
			[]string{svc + ".reading.>", svc + ".answer.>", svc + ".join.>", svc + ".prove.>", svc + ".renew.>"},
			[]string{svc + ".agent.>", svc + ".balancer.>", Inboxes + "." + string(Sensor) + ".>", Inboxes + "." + string(Balancer) + ".>",
				Inboxes + "." + string(Join) + ".>", Inboxes + "." + string(Prove) + ".>"},
		}
	case Controller:
		return rights{[]string{">"}, []string{">"}}
	}
	// A shared token is valid for every service. Answers to its clients go to Inboxes whose names the NATS library chooses.
	return rights{
		[]string{"quell.*.reading.*.*", "quell.*.command", "quell.*.command.token.shared", "quell.*.history.token.shared"},
		[]string{Inboxes + ".*", Inboxes + ".*.*"},
	}
}

// Inboxes is the prefix of every inbox.
const Inboxes = "_INBOX"

// Inbox returns the prefix of the Inboxes where answers to a role arrive. Nobody else can subscribe there, or name them in requests.
func (g Grant) Inbox() string {
	if g.Role == Shared || g.Role == "" {
		return Inboxes
	}
	return Inboxes + "." + string(g.Role) + "." + subjects.Escape(g.ID)
}

func (g Grant) permissions() *server.Permissions {
	s := g.subjects()
	return &server.Permissions{Publish: &server.SubjectPermission{Allow: s.publish}, Subscribe: &server.SubjectPermission{Allow: s.subscribe}}
}

// limits are what the holders of one grant may do. Connections that exceed the limits are closed.
type limits struct {
	connections int
	messages    int64 // per second and connection
	bytes       int64
	shutOut     bool // refuse the grant for a while when one of its connections was closed
}

// MaxConnections is how many connections the holders of one grant may have.
func (r Role) MaxConnections() int { return r.limits().connections }

func (r Role) limits() limits {
	switch r {
	case Sensor:
		return limits{connections: 8, messages: 1000, bytes: 4 << 20, shutOut: true}
	case Join, Prove:
		return limits{connections: 128, messages: 10, bytes: 64 << 10}
	case Operator:
		return limits{connections: 64, messages: 1000, bytes: 4 << 20, shutOut: true}
	case Balancer:
		return limits{connections: 32, messages: 100_000, bytes: 64 << 20, shutOut: true}
	}
	return limits{connections: 50_000, messages: 100_000, bytes: 64 << 20}
}

// SubjectGrant returns the role and name at the end of a command subject. The bus lets only the holder of that grant publish
// there.
func SubjectGrant(subject string) (Grant, error) {
	tokens := strings.Split(subject, ".")
	const named = 5 // quell.<service>.command.<role>.<id>
	if len(tokens) < named || tokens[3] == string(Shared) {
		return SharedGrant(), nil
	}
	service, err1 := subjects.Unescape(tokens[1])
	id, err2 := subjects.Unescape(tokens[4])
	if err1 != nil || err2 != nil {
		return Grant{}, fmt.Errorf("%q names nobody", subject)
	}
	return Grant{Role: Role(tokens[3]), Service: service, ID: id}, nil
}
