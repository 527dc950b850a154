package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/daemon"
	"github.com/quellhq/quell/internal/strictjson"
	"github.com/quellhq/quell/model"
	"github.com/quellhq/quell/model/modelfile"
	"github.com/quellhq/quell/policy"
	"github.com/quellhq/quell/policy/table"
)

func planCommand() *cobra.Command {
	var configPath, modelsPath string
	cmd := &cobra.Command{
		Use:   "plan [--config FILE] [--models FILE] [SNAPSHOTS.jsonl | -]",
		Short: "Run the policy over recorded snapshots and print one plan for each",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := daemon.Drivers().Load(configPath)
			if err != nil {
				return err
			}
			learn := modelsPath == "" && file.Learns()
			if modelsPath == "" {
				modelsPath = file.Trained()
			}
			engine, err := loadEngine(file.Service, modelsPath, learn)
			if err != nil {
				return err
			}
			return planAll(cmd, engine, file.Service.Name, append(args, "-")[0])
		},
	}
	configFlag(cmd, &configPath)
	cmd.Flags().StringVar(&modelsPath, "models", "",
		"use exactly these models; default: what the configuration says. If it says to learn, models are learned from the snapshots")
	return cmd
}

// loadEngine compiles a policy with its models. If models lack a section, that is the user's mistake: unlike a controller, this
// command has no live group to keep running. With learn, models are learned from the snapshots, beginning with those of the file, if any.
func loadEngine(service quell.Service, modelsPath string, learn bool) (*policy.Engine, error) {
	models, err := loadModels(modelsPath)
	if err != nil {
		return nil, err
	}
	if learn {
		return table.All.NewLearningEngine(service, models)
	}
	engine, err := table.All.NewEngine(service, models)
	if errors.Is(err, quell.ErrNoData) {
		return nil, userErrorf("%w; name the file with --models", err)
	}
	return engine, err
}

func loadModels(path string) (*model.Models, error) {
	if path == "" {
		return nil, nil
	}
	models, err := modelfile.Load(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, userErrorf("%w", err)
	}
	return models, err
}

func openInput(cmd *cobra.Command, path string) (string, io.ReadCloser, error) {
	if path == "-" {
		return "standard input", io.NopCloser(cmd.InOrStdin()), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", nil, userErrorf("%w", err)
	}
	return path, f, nil
}

// eachSnapshot calls visit with each snapshot of a file; - is standard input. Errors of visit name the line if they come from r.Errorf.
func eachSnapshot(cmd *cobra.Command, path string, visit func(r *strictjson.SnapshotReader, s *quell.Snapshot) error) error {
	name, in, err := openInput(cmd, path)
	if err != nil {
		return err
	}
	defer in.Close()
	found := false
	for r := strictjson.NewSnapshotReader(name, in); ; found = true {
		s, err := r.Next()
		if errors.Is(err, io.EOF) && !found {
			return userErrorf("%s: no snapshots: `quell journal --snapshots` prints them", name)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := visit(r, s); err != nil {
			return err
		}
	}
}

// planAll prints the plan of each snapshot of a file, up to the first one with a mistake.
func planAll(cmd *cobra.Command, engine *policy.Engine, service, path string) error {
	out := bufio.NewWriter(cmd.OutOrStdout())
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	var state policy.State
	err := eachSnapshot(cmd, path, func(r *strictjson.SnapshotReader, s *quell.Snapshot) error {
		if s.Service != service {
			return r.Errorf("service: the snapshot is of %q, the configuration of %q", s.Service, service)
		}
		var plan quell.Plan
		plan, state = engine.Decide(s, state)
		if err := encoder.Encode(plan); err != nil {
			return fmt.Errorf("writing plans: %w", err)
		}
		return nil
	})
	return errors.Join(flushed(out), err)
}

func flushed(out *bufio.Writer) error {
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing plans: %w", err)
	}
	return nil
}
