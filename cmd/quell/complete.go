package main

import (
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
)

// completeWait is how long the completion of an instance's name may wait for the controller.
const completeWait = 2 * time.Second

// completeInstances lets the shell complete the names of instances, which the running controller is asked for.
func completeInstances(root *cobra.Command, commands ...string) {
	for _, cmd := range root.Commands() {
		if slices.Contains(commands, cmd.Name()) {
			cmd.ValidArgsFunction = instanceNames
		}
	}
}

func instanceNames(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return matching(runningInstances(cmd), begun), cobra.ShellCompDirectiveNoFileComp
}

// runningInstances asks the controller that --config, or a default, names. If it cannot be asked, nothing is completed.
func runningInstances(cmd *cobra.Command) []cobra.Completion {
	path, _ := cmd.Flags().GetString("config") // every command with instances has the flag
	if err := findConfig(cmd, &path); err != nil {
		return nil
	}
	cmd.SetErr(io.Discard) // what a person would be told does not belong on the prompt
	answers := make(chan []cobra.Completion, 1)
	go func() {
		reply, err := ask(cmd, path, bus.Command{Name: bus.Status})
		var s controller.Status
		if err == nil {
			s, err = readStatus[controller.Status](reply)
		}
		if err != nil {
			answers <- nil
			return
		}
		answers <- described(&s)
	}()
	select {
	case names := <-answers:
		return names
	case <-time.After(completeWait):
		return nil
	}
}

func described(s *controller.Status) (names []cobra.Completion) {
	for _, row := range s.Instances {
		names = append(names, cobra.CompletionWithDesc(row.ID, string(row.State)))
	}
	return names
}

func matching(names []cobra.Completion, begun string) []cobra.Completion {
	return slices.DeleteFunc(names, func(name cobra.Completion) bool { return !strings.HasPrefix(name, begun) })
}
