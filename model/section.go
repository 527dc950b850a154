package model

import "encoding/json"

// kinds is the table of sections, in the order of models.json. The name of a section occurs only in the section's own files and in code
// that uses the section.
var kinds = []kind{
	primaKind,
	dialKind,
	iceKind,
	liveKind,
}

// Section is a part of the models that is fitted, read and used on its own. Its kind has its own file and a line in the table.
type Section interface {
	// check reports the rules that the section breaks.
	check(c *check)
	// print writes the section's keys of models.json. Keys without a value are left out.
	print(p *printer)
	// describe prints the section for people.
	describe(d *describer) error
	// pictures draws the section. Parts that it lacks have no picture.
	pictures(m *Models, o ShowOptions) ([]Picture, error)
}

// kind describes a kind of section and makes sections of it.
type kind struct {
	keys []string           // its keys in models.json, in the order in which they are written
	is   func(Section) bool // returns whether a section is of this kind

	// decode reads the section from the texts of its keys, at least one of which is present. It adds mistakes to those of
	// the file.
	decode func(f *file, text texts) Section
	// fit makes the section from training runs, with a report if there is something to report. Both are nil if the runs have no data
	// for the section. Runs that contradict each other are an error.
	fit func(f fitting) (Section, SectionReport, error)
}

// texts are the values of a section's keys, by key. A key that is absent or null in the file is not in the map.
type texts map[string]json.RawMessage

// fitting is the input of a fit.
type fitting struct {
	FitOptions
	rows        []TrainingRow // runs under constant conditions
	alternating []TrainingRow // runs in which the interferer came and went
	trained     *Trained      // the fit adds what others than the section use
}

// is returns whether a section has type S.
func is[S Section](s Section) bool {
	_, ok := s.(S)
	return ok
}

// sectionOf returns the models' section of a type, and whether there is one.
func sectionOf[S Section](m *Models) (found S, ok bool) {
	for _, s := range m.Sections {
		if found, ok := s.(S); ok {
			return found, true
		}
	}
	return found, false
}
