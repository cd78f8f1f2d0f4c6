package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sqube/sqube/cmd/sqube/internal/agent"
	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/changes"
)

// The bounds of the agents of a server.
const (
	mostSessions    = 100
	sessionTimeout  = 30 * time.Minute
	mostAgentText   = 4 << 20
	callerKey       = "caller"
	toolAnnotation  = "mcp-tool"
	placeholderAuth = "Bearer authenticated"
)

// servedAgents are the flags of serve for agents.
type servedAgents struct {
	agentOptions
	on bool
}

func (o *servedAgents) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.on, "mcp", false, "Let agents use the server at "+server.AgentPath+", by the Model Context Protocol (streamable HTTP), as those who may post there: to look, and to try changes in a process on this machine.")
	o.agentOptions.addFlags(fs, "mcp-")
}

func (o *servedAgents) complete(options *server.Options) error {
	if !o.on {
		if len(o.apply) > 0 || o.noConfirmation {
			return errors.New("--mcp-allow-apply and --mcp-no-confirmation need --mcp")
		}
		return nil
	}
	s := &agentServer{agentOptions: o.agentOptions, trials: &agent.Trials{}, caller: ofRequest}
	agents, err := s.server()
	if err != nil {
		return err
	}
	options.Agents = func(onBehalf func(context.Context) (*rest.Config, string, error)) http.Handler {
		return agentHandler(agents, onBehalf)
	}
	return nil
}

// caller is the user of a request.
type caller struct {
	user     user.Info
	config   *rest.Config
	host     string // as which the client knows the server
	annotate func(key, value string)
}

// agentHandler serves agents. Each request has the rights of its user, and a session belongs to one user.
func agentHandler(agents *mcp.Server, onBehalf func(context.Context) (*rest.Config, string, error)) http.Handler {
	streamable := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server {
		count := 0
		for range agents.Sessions() {
			count++
		}
		if count >= mostSessions {
			return nil
		}
		return agents
	}, &mcp.StreamableHTTPOptions{SessionTimeout: sessionTimeout, MaxRequestBodyBytes: mostAgentText, DisableLocalhostProtection: true})
	// The server has authenticated the user; this tells the SDK who it is.
	known := auth.RequireBearerToken(func(ctx context.Context, _ string, r *http.Request) (*auth.TokenInfo, error) {
		who, ok := request.UserFrom(ctx)
		if !ok {
			return nil, auth.ErrInvalidToken
		}
		config, _, err := onBehalf(ctx)
		if err != nil {
			return nil, err
		}
		c := &caller{user: who, config: config, host: r.Host, annotate: func(key, value string) { audit.AddAuditAnnotation(ctx, key, value) }}
		return &auth.TokenInfo{UserID: who.GetName(), Extra: map[string]any{callerKey: c}}, nil
	}, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(streamable)
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", placeholderAuth)
		known.ServeHTTP(w, r)
	}))
}

// ofRequest returns a call by the user of a request to a server.
func ofRequest(r *mcp.CallToolRequest) (*agentCall, error) {
	var c *caller
	if r.Extra != nil && r.Extra.TokenInfo != nil {
		c, _ = r.Extra.TokenInfo.Extra[callerKey].(*caller)
	}
	if c == nil {
		return nil, errors.New("this request has no user")
	}
	c.annotate(changes.GroupVersion.Group+"/"+toolAnnotation, r.Params.Name)
	namespace := &clientcmd.ConfigOverrides{Context: clientcmdapi.Context{Namespace: metav1.NamespaceDefault}}
	own := &cluster{loader: clientcmd.NewDefaultClientConfig(*clientcmdapi.NewConfig(), namespace)}
	config := rest.CopyConfig(c.config)
	config.UserAgent = agentName(r)
	return &agentCall{CallToolRequest: r, cluster: own, owner: c.user.GetName(), where: c.host}, own.use(config)
}
