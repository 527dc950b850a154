package model

import "encoding/json"

// kinds is the table of sections, in the order in which models.json has them. Only a section's own files, and what uses it, know its name.
var kinds = []kind{
	primaKind,
	dialKind,
}

// Section is a part of the models that is fitted, read and used by itself. Its kind stands in a file of its own, with a line in the table.
type Section interface {
	// check reports the rules that the section breaks.
	check(c *check)
	// print writes the section's keys of models.json. What is not there is left out.
	print(p *printer)
	// describe prints the section for people.
	describe(d *describer) error
	// pictures draws the section of the models. What is missing has no picture.
	pictures(m *Models, o ShowOptions) ([]Picture, error)
}

// kind is a kind of section: what is done with it before there is one.
type kind struct {
	keys []string           // that are its own in models.json, in the order in which they are written
	is   func(Section) bool // whether a section is of this kind

	// decode reads the section from the texts of its keys, of which at least one is there. Mistakes go to the file.
	decode func(f *file, text texts) Section
	// fit makes the section from training runs, with a report if there is something to tell. Both are nil where the runs say nothing of
	// what the section is about; runs that contradict each other are an error.
	fit func(f fitting) (Section, SectionReport, error)
}

// texts are the values of a section's keys. Keys that are absent, or null, have none.
type texts map[string]json.RawMessage

// fitting is what a section is fitted to.
type fitting struct {
	FitOptions
	rows    []TrainingRow
	trained *Trained // takes what is of use beyond the section
}

// is says whether a section is of a type.
func is[S Section](s Section) bool {
	_, ok := s.(S)
	return ok
}

// sectionOf returns the models' section of a type, and whether they have one.
func sectionOf[S Section](m *Models) (found S, ok bool) {
	for _, s := range m.Sections {
		if found, ok := s.(S); ok {
			return found, true
		}
	}
	return found, false
}
