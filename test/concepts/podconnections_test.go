package concepts

import (
	"net/http"
	"testing"
)

// What needs a kubelet, without one.
var podConnections = []promise{
	{"the log of a pod without a node is empty, and that of a pod whose node does not exist names the node", func(t *testing.T, c *cluster) {
		c.unscheduled(t)
		equal(t, len(c.get(t, c.path("v1", "pods", "waiting", "log")).want(t, http.StatusNoContent).Body), 0)
		c.get(t, c.path("v1", "pods", "lost", "log")).refused(t, http.StatusNotFound, "NotFound", `pods "node" not found`)
		c.get(t, c.path("v1", "pods", "none", "log")).refused(t, http.StatusNotFound, "NotFound", `pods "none" not found`)
	}},
	{"wrong options of a log are refused before anybody is asked", func(t *testing.T, c *cluster) {
		c.unscheduled(t)
		path := c.path("v1", "pods", "waiting", "log")
		c.get(t, path+"?container=x").refused(t, http.StatusBadRequest, "BadRequest", "container x is not valid for pod waiting")
		for query, part := range map[string]string{
			"tailLines=-1": "tailLines: Invalid value: -1: must be greater than or equal to 0", "limitBytes=0": "limitBytes: Invalid value: 0: must be greater than 0",
			"sinceSeconds=0": "sinceSeconds: Invalid value: 0: must be greater than 0", "sinceSeconds=1&sinceTime=2001-01-01T00:00:00Z": "at most one of `sinceTime` or `sinceSeconds` may be specified",
		} {
			c.get(t, path+"?"+query).refused(t, http.StatusUnprocessableEntity, "Invalid", part)
		}
		c.get(t, path+"?tailLines=x").refused(t, http.StatusBadRequest, "BadRequest", `parsing "x": invalid syntax`)
		c.put(t, path, "{}").want(t, http.StatusMethodNotAllowed)
	}},
	{"exec, attach and portforward say that the pod has no host, or that there is no such node", func(t *testing.T, c *cluster) {
		c.unscheduled(t)
		for _, path := range []string{"exec?command=ls", "exec", "attach", "portforward?ports=80", "portforward"} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				c.send(t, method, c.path("v1", "pods", "waiting", path), nil, nil).refused(t, http.StatusBadRequest, "BadRequest", "pod waiting does not have a host assigned")
				c.send(t, method, c.path("v1", "pods", "lost", path), nil, nil).refused(t, http.StatusNotFound, "NotFound", `pods "node" not found`)
				c.send(t, method, c.path("v1", "pods", "none", path), nil, nil).refused(t, http.StatusNotFound, "NotFound", `pods "none" not found`)
			}
			c.delete(t, c.path("v1", "pods", "waiting", path)).want(t, http.StatusMethodNotAllowed)
		}
		c.get(t, c.path("v1", "pods", "waiting", "exec?container=x&command=ls")).refused(t, http.StatusBadRequest, "BadRequest", "container x is not valid for pod waiting")
	}},
	{"proxy takes every method and every path below it, and says what it can't reach", func(t *testing.T, c *cluster) {
		c.unscheduled(t)
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions} {
			for _, below := range []string{"", "/", "/a/b"} {
				c.send(t, method, c.path("v1", "pods", "waiting", "proxy")+below, nil, nil).refused(t, http.StatusBadRequest, "BadRequest", "address not allowed")
				c.send(t, method, c.path("v1", "services", "s", "proxy")+below, nil, nil).refused(t, http.StatusNotFound, "NotFound", `services "s" not found`)
				c.send(t, method, c.global("v1", "nodes", c.namespace, "proxy")+below, nil, nil).refused(t, http.StatusNotFound, "NotFound", `nodes "`+c.namespace+`" not found`)
			}
		}
	}},
}

// unscheduled creates a pod that has no node, and one whose node does not exist.
func (c *cluster) unscheduled(t *testing.T) {
	t.Helper()
	c.serviceAccount(t)
	c.post(t, c.path("v1", "pods"), manifest("{metadata: {name: waiting}, spec: {containers: [{name: c, image: i}]}}")).want(t, http.StatusCreated)
	c.post(t, c.path("v1", "pods"), pod("lost")).want(t, http.StatusCreated)
}
