// Package trial tries a change on a copy of a cluster, in virtual time.
package trial

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/controlplane"
	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/server/simnodes"
)

// Options say what is tried, and on what.
type Options struct {
	// From is the copy: a file.
	From string
	// User and Groups make the change.
	User   string
	Groups []string
	// For is how long the cluster is watched after the change.
	For time.Duration
	// Change makes the change, as the user of the configuration.
	Change func(ctx context.Context, config *rest.Config) error
	// Command is called outside, with a kubeconfig.
	Command func(ctx context.Context, kubeconfig []byte) error
}

// Run tries a change.
func Run(ctx context.Context, o Options) (result *Result, err error) {
	if err := servertest.PrepareVirtual(); err != nil {
		return nil, err
	}
	var twin *outcome
	var twinErr error
	var trial *outcome
	change := o.Change
	if o.Command != nil {
		d, err := openDoor()
		if err != nil {
			return nil, err
		}
		kubeconfigs, ended := make(chan []byte), make(chan error)
		go func() {
			err := o.Command(ctx, <-kubeconfigs)
			d.shut()
			ended <- err
		}()
		change = func(ctx context.Context, config *rest.Config) error {
			text, err := o.kubeconfig(config, d.listener.Addr().String())
			if err != nil {
				return err
			}
			kubeconfigs <- text
			d.serve(ctx, func(ctx context.Context) (net.Conn, error) { return config.Dial(ctx, "tcp", strings.TrimPrefix(config.Host, "https://")) })
			return <-ended
		}
	}
	inBubbles(func() { trial, err = o.run(ctx, change) }, func() {
		twin, twinErr = o.run(ctx, nil)
	})
	if err := errors.Join(err, twinErr); err != nil {
		return nil, err
	}
	return compare(trial, twin), nil
}

// kubeconfig returns the kubeconfig of a configuration at another address.
func (o *Options) kubeconfig(config *rest.Config, address string) ([]byte, error) {
	c := clientcmdapi.NewConfig()
	c.Clusters["trial"] = &clientcmdapi.Cluster{Server: "https://" + address, CertificateAuthorityData: config.CAData}
	c.AuthInfos["trial"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	c.Contexts["trial"] = &clientcmdapi.Context{Cluster: "trial", AuthInfo: "trial"}
	c.CurrentContext = "trial"
	return clientcmd.Write(*c)
}

// outcome is what happened in one copy.
type outcome struct {
	refused error
	begin   time.Time
	changes []changes.Change
}

// settling is how long a copy gets to come to rest before the change.
const settling = time.Minute

func (o *Options) run(ctx context.Context, change func(context.Context, *rest.Config) error) (*outcome, error) {
	s, err := servertest.Start(servertest.Options{From: o.From, Virtual: true, ControlPlane: controlplane.All, History: o.For + 2*settling})
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return nil, err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	simulated := simnodes.Options{Keep: true}
	for i := range nodes.Items {
		if ready(&nodes.Items[i]) {
			simulated.Names = append(simulated.Names, nodes.Items[i].Name)
		}
	}
	if len(simulated.Names) > 0 {
		if _, err := s.Join(ctx, simulated); err != nil {
			return nil, err
		}
	}
	time.Sleep(settling)
	out := &outcome{begin: time.Now()}
	revision, err := s.Revision(ctx)
	if err != nil {
		return nil, err
	}
	if change != nil {
		config, err := s.User(o.User, o.Groups...)
		if err != nil {
			return nil, err
		}
		out.refused = change(ctx, config)
	}
	time.Sleep(o.For)
	out.changes, err = list(ctx, s.Config, revision)
	return out, err
}

func ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// list returns the changes after a revision.
func list(ctx context.Context, config *rest.Config, revision string) (all []changes.Change, err error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	for token := ""; ; {
		raw, err := client.RESTClient().Get().AbsPath("/apis", changes.GroupVersion.String(), changes.Resource).
			Param("fieldSelector", "afterRevision="+revision).Param("limit", "500").Param("continue", token).Do(ctx).Raw()
		if err != nil {
			return nil, err
		}
		var page changes.ChangeList
		if err := json.Unmarshal(raw, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if token = page.Continue; token == "" {
			return all, nil
		}
	}
}

// compare returns what happened in a trial and not in its twin.
func compare(trial, twin *outcome) *Result {
	r := &Result{Verdict: AtRest}
	key := func(c *changes.Change) string {
		return c.Object.Resource + " " + c.Object.Namespace + "/" + c.Object.Name
	}
	own := map[string]bool{}
	for i := range twin.changes {
		own[key(&twin.changes[i])] = true
	}
	for i := range trial.changes {
		c := &trial.changes[i]
		if own[key(c)] {
			continue
		}
		r.Elsewhere = append(r.Elsewhere, &Object{
			Reference: Reference{c.Object.APIVersion, c.Object.Kind, c.Object.Resource, c.Object.Namespace, c.Object.Name, c.Object.UID},
			Operation: Changed, By: []string{c.User}, First: Duration(c.CreationTimestamp.Sub(trial.begin)),
		})
	}
	return r
}
