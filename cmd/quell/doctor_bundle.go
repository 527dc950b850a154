package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quellhq/quell/bundle"
	"github.com/quellhq/quell/internal/atomicfile"
	"github.com/quellhq/quell/internal/namedfile"
)

// archive writes everything that was found, without secrets. It is made in memory: nothing is left of it if the disk is full.
func (c *checkup) archive(w io.Writer, path string) error {
	files, err := c.files()
	if err != nil {
		return err
	}
	data, err := bundle.Archive("quell-bundle", c.file.Now, files)
	if err != nil {
		return err
	}
	if path == "-" {
		_, err := w.Write(data)
		return err
	}
	if err := atomicfile.Write(path, data, 0o600); err != nil {
		return fmt.Errorf("%w. If the disk is full: quell doctor --bundle - | ssh OTHER 'cat > bundle.tar.gz'", err)
	}
	_, err = fmt.Fprintf(w, "%s: %d finding(s), %d files without secrets. Look through them before you send them: tar -xzf %s\n", path,
		len(c.findings()), len(files), path)
	return err
}

// files are the files of the archive. All secrets are known before the first text is scrubbed.
func (c *checkup) files() (files []bundle.File, err error) {
	var s bundle.Scrubber
	for _, source := range c.sources {
		files = append(files, bundle.File{Name: source.name, Data: s.Config(source.data)})
	}
	for _, source := range c.sources {
		c.hideFiles(&s, filepath.Dir(source.path))
	}
	missing := slices.Clone(c.missing)
	for _, x := range c.services {
		folder := ""
		if c.several {
			folder = "services/" + x.facts.Service.Name + "/"
		}
		more, err := x.files(&s, folder)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
		for _, text := range x.missing {
			if c.several {
				text = x.facts.Service.Name + ": " + text
			}
			missing = append(missing, text)
		}
	}
	return append(files,
		bundle.File{Name: "version.txt", Data: s.Text([]byte(buildVersion() + "\n"))},
		bundle.File{Name: "findings.txt", Data: s.Text([]byte(findingsText(c.findings())))},
		bundle.File{Name: "missing.txt", Data: s.Text([]byte(strings.Join(append(missing, ""), "\n")))}), nil
}

// files are what one service answered.
func (x *examination) files(s *bundle.Scrubber, folder string) ([]bundle.File, error) {
	status, err := json.MarshalIndent(x.facts.Status, "", " ")
	if err != nil {
		return nil, err
	}
	var answers bytes.Buffer
	for _, a := range x.facts.Answers {
		fmt.Fprintf(&answers, "%v  %s: %s\n", a.OK, a.Asked, a.Got)
	}
	return []bundle.File{
		{Name: folder + "answers.txt", Data: s.Text(answers.Bytes())},
		{Name: folder + "status.json", Data: s.JSON(status)},
		{Name: folder + "journal.jsonl", Data: s.JSONLines(x.journal)},
	}, nil
}

// mostSecret bounds the files with secrets that a configuration names.
const mostSecret = 64 << 10

// hideFiles removes also what stands in files that the configuration names: tokens, credentials, keys. Files of services were scrubbed.
func (c *checkup) hideFiles(s *bundle.Scrubber, dir string) {
	for _, name := range s.Hidden() {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(cmp.Or(dir, "."), name)
		}
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Size() > mostSecret || c.has(info) {
			continue
		}
		if data, err := namedfile.Read(path, mostSecret); err == nil {
			s.Hide(string(data))
		}
	}
}

// has returns whether a file is one of the configuration's own.
func (c *checkup) has(info os.FileInfo) bool {
	return slices.ContainsFunc(c.sources, func(source source) bool {
		own, err := os.Stat(source.path)
		return err == nil && os.SameFile(own, info)
	})
}
