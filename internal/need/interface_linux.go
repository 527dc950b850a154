package need

import (
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Interface makes a network namespace for the test's thread, with one pair of interfaces, and returns the name of one of them. It needs the
// privileges of root.
func Interface(t testing.TB) string {
	t.Helper()
	Root(t)
	runtime.LockOSThread() // not unlocked: the thread ends with the test, and so does the namespace
	space, err := netns.New()
	if err != nil {
		Skip(t, "needs network namespaces: "+err.Error())
	}
	t.Cleanup(func() { _ = space.Close() })
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "q0"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "q1"}); err != nil {
		Skip(t, "needs pairs of interfaces: "+err.Error())
	}
	return attrs.Name
}
