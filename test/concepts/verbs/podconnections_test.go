package verbs

import (
	"net/http"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

// Requests that need a kubelet, without one.
var podConnections = []kit.Promise{
	{Statement: "the log of a pod without a node is empty, and that of a pod whose node does not exist names the node", Proof: func(t *testing.T, c *kit.Cluster) {
		unscheduled(t, c)
		kit.Equal(t, len(c.Get(t, c.Path("v1", "pods", "waiting", "log")).Want(t, http.StatusNoContent).Body), 0)
		c.Get(t, c.Path("v1", "pods", "lost", "log")).NotFound(t, `pods "node" not found`)
		c.Get(t, c.Path("v1", "pods", "none", "log")).NotFound(t, `pods "none" not found`)
	}},
	{Statement: "invalid log options are rejected before a kubelet is contacted", Proof: func(t *testing.T, c *kit.Cluster) {
		unscheduled(t, c)
		path := c.Path("v1", "pods", "waiting", "log")
		c.Get(t, path+"?container=x").BadRequest(t, "container x is not valid for pod waiting")
		for query, part := range map[string]string{
			"tailLines=-1": "tailLines: Invalid value: -1: must be greater than or equal to 0", "limitBytes=0": "limitBytes: Invalid value: 0: must be greater than 0",
			"sinceSeconds=0": "sinceSeconds: Invalid value: 0: must be greater than 0", "sinceSeconds=1&sinceTime=2001-01-01T00:00:00Z": "at most one of `sinceTime` or `sinceSeconds` may be specified",
		} {
			c.Get(t, path+"?"+query).Invalid(t, part)
		}
		c.Get(t, path+"?tailLines=x").BadRequest(t, `parsing "x": invalid syntax`)
		c.Put(t, path, "{}").Want(t, http.StatusMethodNotAllowed)
	}},
	{Statement: "exec, attach and portforward report that the pod has no host, or that the node does not exist", Proof: func(t *testing.T, c *kit.Cluster) {
		unscheduled(t, c)
		for _, path := range []string{"exec?command=ls", "exec", "attach", "portforward?ports=80", "portforward"} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				c.Send(t, method, c.Path("v1", "pods", "waiting", path), nil, nil).BadRequest(t, "pod waiting does not have a host assigned")
				c.Send(t, method, c.Path("v1", "pods", "lost", path), nil, nil).NotFound(t, `pods "node" not found`)
				c.Send(t, method, c.Path("v1", "pods", "none", path), nil, nil).NotFound(t, `pods "none" not found`)
			}
			c.Delete(t, c.Path("v1", "pods", "waiting", path)).Want(t, http.StatusMethodNotAllowed)
		}
		c.Get(t, c.Path("v1", "pods", "waiting", "exec?container=x&command=ls")).BadRequest(t, "container x is not valid for pod waiting")
	}},
	{Statement: "proxy accepts every method and every path below it, and reports what it can't reach", Proof: func(t *testing.T, c *kit.Cluster) {
		unscheduled(t, c)
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions} {
			for _, below := range []string{"", "/", "/a/b"} {
				c.Send(t, method, c.Path("v1", "pods", "waiting", "proxy")+below, nil, nil).BadRequest(t, "address not allowed")
				c.Send(t, method, c.Path("v1", "services", "s", "proxy")+below, nil, nil).Refused(t, http.StatusServiceUnavailable, "ServiceUnavailable", `no endpoints available for service "s"`)
				c.Send(t, method, c.ClusterPath("v1", "nodes", c.Namespace, "proxy")+below, nil, nil).NotFound(t, `nodes "`+c.Namespace+`" not found`)
			}
		}
	}},
}

// unscheduled creates a pod that has no node, and one whose node does not exist.
func unscheduled(t *testing.T, c *kit.Cluster) {
	t.Helper()
	c.MakeDefaultServiceAccount(t)
	c.Post(t, c.Path("v1", "pods"), kit.Manifest("{metadata: {name: waiting}, spec: {containers: [{name: c, image: i}]}}")).Created(t)
	c.Post(t, c.Path("v1", "pods"), kit.Pod("lost")).Created(t)
}
