package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/quellhq/quell/config"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/diagnose"
	"github.com/quellhq/quell/internal/namedfile"
)

// checkup is what was found about a configuration and its services.
type checkup struct {
	file     diagnose.Facts // of the file itself
	several  bool           // it names services that have files of their own
	sources  []source       // the file, then those of its services
	services []*examination
	missing  []string // what could not be asked
}

// source is a file of a configuration. Name is its name in an archive.
type source struct {
	name, path string
	data       []byte
}

// mostConfig bounds a configuration file.
const mostConfig = 16 << 20

// examine asks every part of every service, or of the wanted one. A part that does not answer is a finding, never an error. Services with
// mistakes are asked if a controller would run them.
func examine(ctx context.Context, path, wanted string) (*checkup, error) {
	c := &checkup{file: diagnose.Facts{Config: path, Now: time.Now()}}
	if err := c.keep("quell.yaml", path); err != nil {
		return nil, userErrorf("%w", err)
	}
	fleet, err := checkFleet(path)
	if err != nil {
		fleet = c.mistaken(path, err)
	}
	if fleet == nil {
		return c, nil
	}
	if fleet.Shared.Local() {
		_, err := daemon.Drivers().Load(path) // says what such a file is for
		return nil, err
	}
	c.several = fleet.Several()
	c.keepServices(fleet)
	files := fleet.Services
	if wanted != "" {
		if files = chosenOf(files, wanted); len(files) == 0 {
			return nil, userErrorf("%s names no service %q (there are: %s)", path, wanted, namesOf(fleet.Services))
		}
	}
	c.ask(ctx, files)
	return c, nil
}

// mistaken notes the mistakes of a configuration, and returns what a controller would run in spite of them; nil if it would not start.
func (c *checkup) mistaken(path string, err error) *config.Fleet {
	text := err.Error()
	fleet, err := daemon.Drivers().LoadFleet(path)
	if err != nil {
		c.missing = append(c.missing, "controller, balancer and instances were not asked: the configuration has mistakes")
		fleet = nil
	} else {
		for _, bad := range fleet.Bad {
			c.missing = append(c.missing, badText(bad))
			if !strings.Contains(text, bad.Err.Error()) {
				text += "\n" + bad.Err.Error()
			}
		}
	}
	c.file.Mistakes = strings.ReplaceAll(text, "\n", "; ")
	return fleet
}

// keep reads a file for the archive.
func (c *checkup) keep(name, path string) error {
	data, err := namedfile.Read(path, mostConfig)
	if err == nil {
		c.sources = append(c.sources, source{name, path, data})
	}
	return err
}

// keepServices reads the files of services. Those that cannot be read are among the mistakes.
func (c *checkup) keepServices(fleet *config.Fleet) {
	if !fleet.Several() {
		return
	}
	for _, file := range fleet.Services {
		_ = c.keep("services/"+file.Service.Name+"/quell.yaml", file.Path)
	}
	for i, bad := range fleet.Bad {
		_ = c.keep(fmt.Sprintf("services/mistaken-%d.yaml", i+1), bad.Path)
	}
}

func chosenOf(files []*config.File, service string) (list []*config.File) {
	for _, file := range files {
		if file.Service.Name == service {
			list = append(list, file)
		}
	}
	return list
}

// ask asks the parts of all services at once.
func (c *checkup) ask(ctx context.Context, files []*config.File) {
	c.services = make([]*examination, len(files))
	var all sync.WaitGroup
	for i, file := range files {
		all.Go(func() {
			x := &examination{facts: diagnose.Facts{Config: c.file.Config, Among: c.several, Now: c.file.Now}}
			x.ask(ctx, file)
			x.findings = diagnose.Findings(&x.facts)
			c.services[i] = x
		})
	}
	all.Wait()
}

// findings lists what is wrong with the file and with its services. Of several, each is named.
func (c *checkup) findings() []diagnose.Finding {
	list := diagnose.Findings(&c.file)
	for _, x := range c.services {
		for _, f := range x.findings {
			if c.several {
				f.What = x.facts.Service.Name + ": " + f.What
			}
			list = append(list, f)
		}
	}
	return list
}
