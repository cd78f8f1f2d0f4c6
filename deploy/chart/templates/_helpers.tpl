{{- define "sqube.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "sqube.selectorLabels" -}}
app.kubernetes.io/name: sqube
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sqube.labels" -}}
{{ include "sqube.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "sqube.datastoreSecret" -}}
{{- if and .Values.datastore.existingSecret (or .Values.datastore.dsn .Values.datastore.password .Values.datastore.ca) }}
{{- fail "set datastore.existingSecret or datastore.dsn, password and ca, not both" }}
{{- else if not (or .Values.datastore.existingSecret .Values.datastore.dsn) }}
{{- fail "set datastore.dsn to the DSN of a Postgres database, or datastore.existingSecret to a Secret with it" }}
{{- end }}
{{- .Values.datastore.existingSecret | default (printf "%s-postgres" (include "sqube.fullname" .)) }}
{{- end }}

{{- define "sqube.keySecret" -}}
{{- if and .Values.pki.existingSecret .Values.pki.key }}
{{- fail "set pki.existingSecret or pki.key, not both" }}
{{- else if not (or .Values.pki.existingSecret .Values.pki.key) }}
{{- fail "set pki.key to what `head -c 32 /dev/urandom | base64` prints, or pki.existingSecret to a Secret with it" }}
{{- end }}
{{- .Values.pki.existingSecret | default (printf "%s-keys" (include "sqube.fullname" .)) }}
{{- end }}

{{- /* The configuration file: what the chart sets, and then the values in config. */}}
{{- define "sqube.config" -}}
{{- $fullname := include "sqube.fullname" . }}
{{- /* The Secret's dsn overrides datastore. If it is empty, no server may start on SQLite, each on its own. */}}
{{- $config := dict "data-dir" "/data" "datastore" "postgres://" "pki-encryption-key-file" "/etc/sqube/keys/key" "logging-format" "json" "shutdown-delay-duration" "5s" }}
{{- $names := list $fullname (printf "%s.%s" $fullname .Release.Namespace) (printf "%s.%s.svc" $fullname .Release.Namespace) }}
{{- $_ := set $config "tls-san" (concat $names .Values.tls.names) }}
{{- if .Values.tls.secret }}
{{- $_ := set $config "tls-cert-file" "/etc/sqube/tls/tls.crt" }}
{{- $_ := set $config "tls-private-key-file" "/etc/sqube/tls/tls.key" }}
{{- end }}
{{- if and (include "sqube.metricsSecret" .) (not .Values.mirror) }}
{{- $_ := set $config "token-auth-file" "/etc/sqube/tokens/tokens.csv" }}
{{- end }}
{{- range list "data-dir" "datastore" "pki-encryption-key-file" "secure-port" "tls-san" "tls-cert-file" "tls-private-key-file" }}
{{- if hasKey $.Values.config . }}
{{- fail (printf "config.%s is the chart's to set: see datastore, pki, tls and service" .) }}
{{- end }}
{{- end }}
{{- toYaml (mergeOverwrite $config .Values.config) }}
{{- end }}

{{- /* The Secret with Prometheus' token, or nothing. */}}
{{- define "sqube.metricsSecret" -}}
{{- if and .Values.metrics.existingSecret .Values.metrics.token }}
{{- fail "set metrics.existingSecret or metrics.token, not both" }}
{{- else if .Values.metrics.existingSecret }}
{{- .Values.metrics.existingSecret }}
{{- else if .Values.metrics.token }}
{{- printf "%s-metrics" (include "sqube.fullname" .) }}
{{- else if .Values.metrics.serviceMonitor.enabled }}
{{- fail "set metrics.token to the token that Prometheus shows, or metrics.existingSecret to a Secret with it" }}
{{- end }}
{{- end }}
