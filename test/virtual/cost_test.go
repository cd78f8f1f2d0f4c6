package virtual

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/controlplane"
	"github.com/sqube/sqube/server/servertest"
)

func realNow() time.Time {
	var r unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &r)
	return time.Unix(r.Unix())
}

func TestCost(t *testing.T) {
	d, _ := time.ParseDuration(os.Getenv("SPAN"))
	for _, o := range []servertest.Options{{}, {ControlPlane: controlplane.All}} {
		if (o.ControlPlane == nil) != (os.Getenv("PLANE") == "") {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			at := realNow()
			o.Virtual = true
			o.Configure = func(*server.Options) {}
			servertest.Run(t, o)
			t.Log("start", realNow().Sub(at))
			at = realNow()
			time.Sleep(d)
			t.Log("slept", d, realNow().Sub(at))
			at = realNow()
			time.Sleep(d)
			t.Log("slept", d, realNow().Sub(at))
		})
	}
}
