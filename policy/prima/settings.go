package prima

import (
	"fmt"
	"strings"
	"time"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/budget"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/divide"
	"github.com/quellhq/quell/setting"
)

// Settings are the settings of prima; shares are fractions.
type Settings struct {
	policy.Senses
	Headroom         float64 // load may reach this fraction of the summed capacity; 0: auto
	Margin           bool    // the measured margin of predictions is left free in place of headroom, if models are learned in place
	ScaleInMargin    float64 // instances are removed only if this fraction of the remaining capacity stays free
	ScaleOut         quell.ScaleOut
	Share            divide.Rule // divide.Proportional or divide.Tail
	Tolerance        float64     // no weight changes by less than this fraction of itself
	Spare            int         // extra instances kept; the paper's factor of safety
	Calibrate        float64     // delta of section IV; 0 turns calibration off
	CalibrationDecay float64     // fraction of a calibrated severity offset that is dropped per period
	Credits          policy.CreditSettings
	finds            bool // the headroom is found by what is missed of an error budget
}

func keys(s *Settings) setting.Table {
	return setting.Table{
		policy.ResourcesKey(&s.Resources),
		setting.Opt("interference_model", setting.OneOf(&s.InterferenceModel, quell.InterferenceModels),
			"total: one curve of total utilisation over severity; joint: severity over own and interfering use"),
		setting.Opt("pooling", setting.Parsed(&s.Pooling, "auto, learned, or a number from 0 to 1", policy.ParsePooling, policy.Pooling.String),
			"how far a balancer that looks for idle instances makes the group one station: 0, the paper's law of single instances; learned; "+
				"auto: learned if group.max is above 10, else 0; or a number up to 1. Only for models that are learned in place"),
		policy.ConfidenceKey(&s.Confidence),
		policy.ConfirmKey(&s.Confirm),
		setting.Opt("headroom", setting.Parsed(&s.Headroom, "auto or a share", parseHeadroom, headroomText),
			"the group's load may reach this share of the sum of its instances' capacities; auto: 90%, and with slo.target what is found by what "+
				"is missed (docs/budget.md)"),
		setting.Opt("margin", setting.Bool(&s.Margin),
			"whether models that are learned in place leave the measured margin of their predictions free, in place of headroom"),
		setting.Opt("scale_in_margin", setting.Share(&s.ScaleInMargin).AtLeast(0).Below(1),
			"an instance is removed only if this share of the remaining capacity stays free"),
		setting.Opt("scale_out", setting.OneOf(&s.ScaleOut, quell.ScaleOuts),
			"one: add one instance at a time; predicted: add as many as the missing capacity needs"),
		setting.Opt("share", setting.OneOf(&s.Share, []divide.Rule{divide.Proportional, divide.Tail}),
			"proportional: shares in proportion to capacity; tail: shares with the shortest tail of response times, within the capacities"),
		policy.ToleranceKey(&s.Tolerance),
		setting.Opt("spare", setting.Whole(&s.Spare).AtLeast(0), "number of instances kept in addition to those needed, for safety"),
		setting.Opt("calibrate", setting.Share(&s.Calibrate).AtLeast(0).Below(1),
			"the severity is corrected if the predicted response time is this near the threshold; 0% turns it off"),
		setting.Opt("calibration_decay", setting.Share(&s.CalibrationDecay).Between(0, 1),
			"share of a correction that is forgotten in each period"),
		setting.Opt("credits", creditKeys(&s.Credits), "how the credits of burstable instances count"),
	}
}

func agrees(d *setting.Decoder, path string, s Settings, service quell.Service) {
	spare, margin, headroom := setting.Join(path, "spare"), setting.Join(path, "scale_in_margin"), setting.Join(path, "headroom")
	maximum := strings.TrimSuffix(path, "policy") + "group.max"
	if d.Sound(spare, maximum) && s.Spare >= service.Group.Max {
		d.Refuse(spare, "", "must be below %s, which is %d", maximum, service.Group.Max)
	}
	if d.Sound(headroom, margin) && s.Headroom > 0 && s.ScaleInMargin >= s.Headroom {
		d.Refuse(d.First(margin, headroom), "", "a scale_in_margin of %s with a headroom of %s would never scale in",
			setting.FormatShare(s.ScaleInMargin), setting.FormatShare(s.Headroom))
	}
	creditsAgree(d, path, s.Credits)
}

// moreHeadroom is a further value of headroom that the arena, which compares policies, tries. Smaller values leave more room.
const moreHeadroom = 0.7

// variants returns the variants of the settings that the arena tries: the other interference model and the other division of the load
// (with the two schedulings that differ most), a smaller headroom, a spare instance, and, of several resources, only the default one.
func variants(s Settings) (list []policy.VariantOf[Settings]) {
	add := func(change string, s Settings, over ...quell.Scheduling) {
		list = append(list, policy.VariantOf[Settings]{Change: change, Settings: s, Schedulings: over})
	}
	other := s
	if other.InterferenceModel = quell.Total; s.InterferenceModel == quell.Total {
		other.InterferenceModel = quell.Joint
	}
	add(string(other.InterferenceModel), other, quell.LeastConn, quell.RoundRobin)
	if roomier := s; s.Headroom != moreHeadroom {
		roomier.Headroom = moreHeadroom
		add(fmt.Sprintf("headroom %.0f%%", moreHeadroom*100), roomier, quell.LeastConn)
	}
	if spared := s; s.Spare == 0 {
		spared.Spare = 1
		add("spare 1", spared, quell.LeastConn)
	}
	other = s
	if other.Share = divide.Tail; s.Share == divide.Tail {
		other.Share = divide.Proportional
	}
	add("share "+string(other.Share), other, quell.LeastConn, quell.RoundRobin)
	if narrow := s; s.Resources.Auto || len(s.Resources.List()) > 1 {
		narrow.Resources = policy.ResourcesOf(policy.DefaultResource)
		add("by "+string(policy.DefaultResource), narrow, quell.LeastConn, quell.RoundRobin)
	}
	return list
}

// suiting returns the settings for a service: whether the pooling is learned depends on the largest size of its group.
func (s Settings) suiting(service quell.Service) Settings {
	s.Pooling = s.Pooling.In(service.Group.Max)
	return s
}

// memory is what prima remembers: for how many consecutive snapshots each kind of change was needed.
type memory struct {
	ScaleOut int `json:"scale_out,omitempty"` // too little capacity
	ScaleIn  int `json:"scale_in,omitempty"`  // too much
	Shift    int `json:"shift,omitempty"`     // an instance above its capacity
	Calm     int `json:"calm,omitempty"`      // snapshots without neighbours; see comeBack
	Watch    int `json:"watch,omitempty"`     // for how many snapshots the last removal is still watched
	Seen     int `json:"seen,omitempty"`      // snapshots in which the group was seen, up to keptFor

	Visits  visits       `json:"visits,omitempty"` // neighbours that came; the map is never changed
	Budget  budget.Slack `json:"budget,omitzero"`  // what is left free beside headroom
	Reserve reserve      `json:"reserve,omitzero"` // what is left free for an error budget
	Laws    creditLaws   `json:"laws,omitempty"`   // how fast credits drain; the map is never changed
}

// instance is what prima remembers of an instance.
type instance struct {
	Offset       float64        `json:"offset,omitempty"`        // severity that calibration (PRIMA, section IV) adds
	Of           quell.Resource `json:"of,omitempty"`            // the resource whose severity is corrected; "": the default one, or none yet
	Good         int            `json:"good,omitempty"`          // consecutive measurements that need less than half of the offset
	Collected    int            `json:"collected,omitempty"`     // snapshots collected while the prediction was near the threshold
	CollectedN   int            `json:"collected_n,omitempty"`   // response times in these snapshots
	CollectedMS  float64        `json:"collected_ms,omitempty"`  // the lowest window's response time
	CollectedUse float64        `json:"collected_use,omitempty"` // utilisation in that window
	CollectedAt  time.Time      `json:"collected_at,omitzero"`   // time of the last collected observation

	Typical Typical             `json:"usual,omitzero"`    // mean of its capacity since it last changed
	Beside  uint8               `json:"beside,omitempty"`  // resources, as bits in the order of quell.Resources, on which neighbours were told apart from chance
	Avoided *avoided            `json:"avoided,omitempty"` // it was measured to miss the objective whatever its share; never changed in place
	Credits policy.CreditTracks `json:"credits,omitempty"` // the map is never changed
}

// BeyondCredits says whether the instance was seen to use more of its processors than its credits allow; nil: nothing was seen.
func (mem *instance) BeyondCredits() *bool { return mem.Credits[quell.CPU].Sold }

func instanceOf(m *policy.Member) *instance { return policy.MemoryOf[instance](m) }
