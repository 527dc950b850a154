package main

import "github.com/spf13/cobra"

// listed is a command in the list that quell prints without arguments: its name, and what it does, in one line.
type listed struct{ name, does string }

// commandGroups lists the commands by what they are for. The groups that a newcomer needs come first, and so do the commands in a group.
var commandGroups = []struct {
	title string
	list  []listed
}{
	{"Run:", []listed{
		{"demo", "see PRIMA beside today's balancing, in two minutes"},
		{"controller", "run the controller of a service"},
		{"agent", "report readings of this machine and answer probes"},
		{"balancer", "run the built-in load balancer, with the prober"},
		{"init", "write a first configuration, or look at servers from here"},
		{"config", "check, print and explain configurations"},
		{"doctor", "show which sensors this machine offers, and what is missing"},
	}},
	{"Look:", []listed{
		{"status", "say whether it is well, and what each instance can take"},
		{"top", "watch every instance live, with keys for pause, drain and share"},
		{"budget", "show how much of the error budget is spent, and because of what"},
		{"page", "print the address of the web page, with a log-in"},
		{"explain", "say why an instance has its weight"},
		{"journal", "show what was decided, and why"},
		{"report", "say why the objective was missed, and what acting changes"},
		{"compare", "learn what acting saves, by handing control back in turns"},
		{"plan", "decide again over recorded snapshots"},
	}},
	{"Operate:", []listed{
		{"pause", "stop acting on decisions"},
		{"resume", "act on decisions again"},
		{"drain", "take an instance out of rotation, and wait until it is empty"},
		{"undrain", "put an instance back in rotation"},
		{"override", "set an instance's share of the traffic yourself"},
		{"replace", "start a fresh instance in place of this one"},
		{"authority", "set how far the policy may go"},
		{"release", "put the balancer back as it was before Quell"},
		{"credentials", "make and revoke credentials for the bus"},
		{"join-token", "let machines get their credentials by themselves"},
	}},
	{"Learn:", []listed{
		{"redline", "find how much load one instance carries within the objective"},
		{"forget", "drop what was learned in place, and begin again"},
		{"train", "run controlled experiments: one row for each"},
		{"fit", "fit models to rows or to recorded snapshots"},
		{"model", "show models"},
	}},
	{"One machine:", []listed{
		{"run", "run a program in a control group of its own"},
		{"limits", "show or remove limits of control groups"},
		{"credits", "measure the credits of a burstable instance"},
		{"advise", "advise what to rent for a recorded load"},
	}},
	{"Laboratory:", []listed{
		{"sim", "play a scenario on simulated machines"},
		{"arena", "compare every policy and rival over many seeds"},
		{"lab", "play experiments on real programs in this kernel (Linux, root)"},
	}},
}

// arrange sorts the commands into their groups and gives each its line. The longer text that it had is shown by its own help.
func arrange(root *cobra.Command) {
	byName := map[string]*cobra.Command{}
	for _, cmd := range root.Commands() {
		byName[cmd.Name()] = cmd
		root.RemoveCommand(cmd)
	}
	cobra.EnableCommandSorting = false
	for _, g := range commandGroups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, l := range g.list {
			cmd := byName[l.name]
			if cmd.GroupID = g.title; cmd.Long == "" {
				cmd.Long = cmd.Short
			}
			cmd.Short = l.does
			root.AddCommand(cmd)
			delete(byName, l.name)
		}
	}
	for _, name := range []string{"version", "help"} {
		if cmd := byName[name]; cmd != nil {
			root.AddCommand(cmd)
			delete(byName, name)
		}
	}
	for _, cmd := range byName { // those that only other programs call
		root.AddCommand(cmd)
	}
}
