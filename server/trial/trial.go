// Package trial tries a change on a copy of a cluster, in virtual time.
package trial

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

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
	var twinErr error
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
			d.serve(ctx, func(ctx context.Context) (net.Conn, error) {
				return config.Dial(ctx, "tcp", strings.TrimPrefix(config.Host, "https://"))
			})
			return <-ended
		}
	}
	// Made outside, so the bubble that waits stands still. It does so at its end alone.
	twins := make(chan *outcome, 1)
	inBubbles(func() { result, err = o.try(ctx, change, twins) }, func() {
		var twin *outcome
		twin, twinErr = o.run(ctx, nil)
		twins <- twin
	})
	if err := errors.Join(err, twinErr); err != nil {
		return nil, err
	}
	return result, nil
}

// try makes the change in one copy, and compares it with its twin. What it reads for that is of its own bubble.
func (o *Options) try(ctx context.Context, change func(context.Context, *rest.Config) error, twins <-chan *outcome) (*Result, error) {
	trial, err := o.run(ctx, change)
	twin := <-twins
	if err != nil || twin == nil {
		return nil, err
	}
	result, err := compare(ctx, trial, twin)
	if err != nil {
		return nil, err
	}
	result.Tried.User, result.Tried.Begin, result.Tried.For = o.User, trial.begin, Duration(trial.end.Sub(trial.begin))
	result.Tried.Nodes, result.Tried.Objects = trial.nodes, trial.objects
	return result, nil
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
	out := &outcome{begin: time.Now(), user: o.User, nodes: len(simulated.Names)}
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
	out.end = time.Now()
	after, err := strconv.ParseInt(revision, 10, 64)
	if err != nil {
		return nil, err
	}
	return out, collect(ctx, s.History(), after, out)
}

func ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
