package bus

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/quellhq/quell/internal/terminal"
)

// Role determines what a credential allows.
type Role string

// Roles of credentials. Grant.subjects lists what each role may publish and receive.
const (
	Sensor     Role = "sensor"     // publish its own readings, receive and answer its own orders
	Balancer   Role = "balancer"   // publish readings of every instance, in its own name; receive its backends
	Controller Role = "controller" // everything
	Operator   Role = "operator"   // ask the controller: status, journal, pause, override, drain, replace
	Leaf       Role = "leaf"       // forward messages of agents and balancers between a leaf node and an external NATS
	shared     Role = "token"      // a token that all processes share, as was usual before roles existed: readings and status
)

// Roles lists the roles that a credential can have.
var Roles = []Role{Sensor, Balancer, Controller, Operator, Leaf}

// Grant is a role with its holder: the instance of a sensor, or the name of a balancer or of a person.
type Grant struct {
	Role    Role
	Service string
	ID      string
}

func (g Grant) String() string { return string(g.Role) + " " + g.ID }

const maxGrantID = 64 // of a name that a person reads

func (g Grant) check() error {
	if !slices.Contains(Roles, g.Role) {
		return userErrorf("unknown role %q; there are %s", g.Role, roleNames())
	}
	if g.ID == "" {
		return userErrorf("a credential of role %s needs an id", g.Role)
	}
	longest := maxGrantID
	if g.Role == Sensor {
		longest = maxInstanceName
	}
	if _, err := token(string(g.Role), g.ID, longest); err != nil {
		return err
	}
	if strings.ContainsFunc(g.ID, func(r rune) bool { return !terminal.Shown(r) }) {
		return userErrorf("the id %q contains characters that cannot be printed", g.ID)
	}
	_, err := serviceToken(g.Service)
	return err
}

func roleNames() string {
	names := make([]string, len(Roles))
	for i, r := range Roles {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}

// inside is whoever runs the embedded bus.
var inside = Grant{Role: Controller, ID: "controller"}

// sharedGrant is the grant of a shared token.
func sharedGrant() Grant { return Grant{Role: shared, ID: "shared"} }

// subjects are the subjects that a role may publish and subscribe to. All others are denied.
type subjects struct{ publish, subscribe []string }

// subjects returns what a grant allows. Only controllers may use JetStream's own subjects, which give access to the streams of journal,
// state and lease.
func (g Grant) subjects() subjects {
	svc, id := "quell."+escape(g.Service), escape(g.ID)
	inbox := g.inbox() + ".>"
	switch g.Role {
	case Sensor:
		return subjects{[]string{svc + ".reading.agent." + id, svc + ".answer." + id + ".*"}, []string{svc + ".agent." + id + ".>", inbox}}
	case Balancer:
		return subjects{[]string{svc + ".reading.balancer.*." + id, svc + ".reading.prober.*." + id},
			[]string{svc + ".balancer." + id + ".>", inbox}}
	case Operator:
		return subjects{[]string{svc + ".command.operator." + id, svc + ".history.operator." + id}, []string{inbox}}
	case Leaf:
		return subjects{
			[]string{svc + ".reading.>", svc + ".answer.>"},
			[]string{svc + ".agent.>", svc + ".balancer.>", inboxes + "." + string(Sensor) + ".>", inboxes + "." + string(Balancer) + ".>"},
		}
	case Controller:
		return subjects{[]string{">"}, []string{">"}}
	}
	// A shared token is valid for every service. Answers to its clients go to inboxes whose names the NATS library chooses.
	return subjects{
		[]string{"quell.*.reading.*.*", "quell.*.command", "quell.*.command.token.shared", "quell.*.history.token.shared"},
		[]string{inboxes + ".*", inboxes + ".*.*"},
	}
}

// inboxes is the prefix of every inbox.
const inboxes = "_INBOX"

// inbox returns the prefix of the inboxes where answers to a role arrive. Nobody else can subscribe there, or name them in requests.
func (g Grant) inbox() string {
	if g.Role == shared || g.Role == "" {
		return inboxes
	}
	return inboxes + "." + string(g.Role) + "." + escape(g.ID)
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

func (r Role) limits() limits {
	switch r {
	case Sensor:
		return limits{connections: 8, messages: 1000, bytes: 4 << 20, shutOut: true}
	case Operator:
		return limits{connections: 64, messages: 1000, bytes: 4 << 20, shutOut: true}
	case Balancer:
		return limits{connections: 32, messages: 100_000, bytes: 64 << 20, shutOut: true}
	}
	return limits{connections: 50_000, messages: 100_000, bytes: 64 << 20}
}

// subjectGrant returns the role and name at the end of a command subject. The bus lets only the holder of that grant publish
// there.
func subjectGrant(subject string) (Grant, error) {
	tokens := strings.Split(subject, ".")
	const named = 5 // quell.<service>.command.<role>.<id>
	if len(tokens) < named || tokens[3] == string(shared) {
		return sharedGrant(), nil
	}
	service, err1 := unescape(tokens[1])
	id, err2 := unescape(tokens[4])
	if err1 != nil || err2 != nil {
		return Grant{}, fmt.Errorf("%q names nobody", subject)
	}
	return Grant{Role: Role(tokens[3]), Service: service, ID: id}, nil
}
