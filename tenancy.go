package quell

// Tenancy is what an agent tells of the policy that divides its machine among control groups. It is for people: no decision of a
// controller uses it. Values that were not measured are absent.
type Tenancy struct {
	Policy   string        `json:"policy"`
	Cores    *float64      `json:"cores,omitempty"` // processors of the machine
	Used     *float64      `json:"used,omitempty"`  // processors in use
	Steal    *float64      `json:"steal,omitempty"` // part of the processors' time that the hypervisor gave to other machines
	Why      string        `json:"why,omitempty"`   // what is decided for the whole machine
	Tenants  []TenantState `json:"tenants,omitempty"`
	More     int           `json:"more,omitempty"`     // tenants that are not listed
	Problems []string      `json:"problems,omitempty"` // what cannot be read, or is not in force
}

// TenantState is a control group of a machine that a policy divides.
type TenantState struct {
	Name       string   `json:"name"`
	Processors *float64 `json:"processors,omitempty"` // in use
	Wanted     *float64 `json:"wanted,omitempty"`     // processors that it would use alone
	Waits      *float64 `json:"waits,omitempty"`      // part of the time in which it wanted to run and waited instead
	Slowdown   *float64 `json:"slowdown,omitempty"`   // time per unit of work, over that of the group alone
	Importance *float64 `json:"importance,omitempty"` // relative to the others'; absent: 1
	Idle       bool     `json:"idle,omitempty"`
	Cap        *float64 `json:"cap,omitempty"`    // processors that it may use at most
	Weight     *float64 `json:"weight,omitempty"` // relative to the kernel's usual one
	Favour     Favour   `json:"favour,omitempty"`
	Why        string   `json:"why,omitempty"`
}

// Favour says whether a policy gives a tenant more or less than its importance alone would.
type Favour string

// The favours. Absent: neither.
const (
	Favoured Favour = "favoured"
	HeldBack Favour = "held back"
)

// Bounds of a Tenancy.
const (
	MostTenants        = 16
	MostTenantProblems = 8
	MostTenantText     = 300 // bytes of a text
	MostTenantName     = maxIDBytes
)

// Validate returns all rules that the tenancy breaks, joined, or nil.
func (t *Tenancy) Validate() error {
	var p problems
	t.check(&p)
	return p.err()
}

// check adds all rules that the tenancy breaks to p.
func (t *Tenancy) check(p *problems) {
	p.id("policy", t.Policy)
	p.optional("cores", t.Cores, maxRate)
	p.optional("used", t.Used, maxRate)
	p.optional("steal", t.Steal, maxUtilization)
	p.text("why", t.Why)
	if len(t.Tenants) > MostTenants || len(t.Problems) > MostTenantProblems || t.More < 0 {
		p.addf("tenants", "%d tenants, %d more and %d problems; at most %d and %d are possible", len(t.Tenants), t.More, len(t.Problems),
			MostTenants, MostTenantProblems)
		return
	}
	for _, text := range t.Problems {
		p.text("problems", text)
	}
	for i := range t.Tenants {
		one := &t.Tenants[i]
		p.in("tenants."+one.Name, func() {
			p.id("name", one.Name)
			p.text("why", one.Why)
			p.optional("processors", one.Processors, maxRate)
			p.optional("wanted", one.Wanted, maxRate)
			p.optional("waits", one.Waits, 1)
			p.optional("slowdown", one.Slowdown, maxSeverity)
			p.optional("importance", one.Importance, maxRate)
			p.optional("cap", one.Cap, maxRate)
			p.optional("weight", one.Weight, maxRate)
			if one.Favour != "" && one.Favour != Favoured && one.Favour != HeldBack {
				p.addf("favour", "unknown: %q", one.Favour)
			}
		})
	}
}

func (p *problems) text(field, text string) {
	if len(text) > MostTenantText {
		p.addf(field, "longer than %d bytes", MostTenantText)
	}
}
