{{- define "tuskpoint.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}
{{- end }}

{{- define "tuskpoint.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tuskpoint.labels" -}}
{{ include "tuskpoint.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "tuskpoint.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "tuskpoint.name" .) "default") }}
{{- end }}

{{- /* Origins of web pages that may call, with the origin of the Ingress. */ -}}
{{- define "tuskpoint.origins" -}}
{{- $origins := .Values.http.origins }}
{{- if .Values.ingress.http.enabled }}
{{- $origins = append $origins (printf "https://%s" .Values.ingress.http.host) | uniq }}
{{- end }}
{{- join " " $origins }}
{{- end }}

{{- /* Readiness: the server serves. Kubernetes probes have no client certificate, and those for gRPC no TLS. */ -}}
{{- define "tuskpoint.probe" -}}
{{- if .Values.tls.clientCaSecret -}}
tcpSocket:
  port: grpc
{{- else if .Values.http.enabled -}}
httpGet:
  path: /readyz
  port: http
  scheme: {{ empty .Values.tls.existingSecret | ternary "HTTP" "HTTPS" }}
{{- else if not .Values.tls.existingSecret -}}
grpc:
  port: 7390
{{- else -}}
exec:
  command: [tuskpoint-server, health]
{{- end }}
{{- end }}

{{- /* Liveness: the process also lives while it drains or has no journal. */ -}}
{{- define "tuskpoint.livenessProbe" -}}
{{- if or .Values.tls.clientCaSecret (not .Values.http.enabled) -}}
tcpSocket:
  port: grpc
{{- else -}}
httpGet:
  path: /healthz
  port: http
  scheme: {{ empty .Values.tls.existingSecret | ternary "HTTP" "HTTPS" }}
{{- end }}
{{- end }}

{{- /* Refuse settings that would lose data, or with which no server starts. */ -}}
{{- define "tuskpoint.check" -}}
{{- $shared := eq .Values.journal.kind "postgresql" }}
{{- $stored := or .Values.blobs.url .Values.walrus.publisherUrls }}
{{- if and (not $shared) (gt (int .Values.replicas) 1) }}
{{- fail "replicas: with journal.kind=sqlite there is one server; use journal.kind=postgresql for more" }}
{{- end }}
{{- if and $shared (not .Values.journal.existingSecret) }}
{{- fail "journal.existingSecret: journal.kind=postgresql needs a Secret whose key `url` has the URL of the database" }}
{{- end }}
{{- if and (not $shared) .Values.journal.existingSecret }}
{{- fail "journal.existingSecret is set and journal.kind is sqlite; set journal.kind=postgresql, or remove the secret" }}
{{- end }}
{{- if and $shared (not $stored) }}
{{- fail "blobs.url: with journal.kind=postgresql the pods keep nothing; give a bucket, or walrus.publisherUrls and walrus.aggregatorUrls" }}
{{- end }}
{{- if and .Values.blobs.url .Values.walrus.publisherUrls }}
{{- fail "blobs.url and walrus.publisherUrls are both set; choose one blob store" }}
{{- end }}
{{- if ne (empty .Values.walrus.publisherUrls) (empty .Values.walrus.aggregatorUrls) }}
{{- fail "walrus: give both publisherUrls and aggregatorUrls" }}
{{- end }}
{{- if and (not .Values.tls.existingSecret) .Values.tls.clientCaSecret }}
{{- fail "tls.clientCaSecret is set and tls.existingSecret is not; without TLS no client shows a certificate" }}
{{- end }}
{{- if not (or .Values.tls.existingSecret .Values.insecurePlaintext) }}
{{- fail "tls.existingSecret: give the Secret of a certificate, or set insecurePlaintext=true if the network of the cluster is trusted" }}
{{- end }}
{{- if and .Values.walrus.publisherUrls (not (or .Values.keys.existingSecret .Values.public)) }}
{{- fail "keys.existingSecret: everybody can read what is on Walrus; give keys, or set public=true if that is meant" }}
{{- end }}
{{- if and .Values.tls.existingSecret (not (or .Values.tokens.existingSecret .Values.tls.clientCaSecret .Values.insecureAnonymous)) }}
{{- fail "tokens.existingSecret: everyone who reaches the server could do everything; give tokens or tls.clientCaSecret, or set insecureAnonymous=true if that is meant" }}
{{- end }}
{{- if and .Values.metrics.podMonitor.enabled (not .Values.metrics.enabled) }}
{{- fail "metrics.podMonitor.enabled is set and metrics.enabled is not; set metrics.enabled=true, or Prometheus has nothing to read" }}
{{- end }}
{{- if and .Values.ingress.http.enabled (not .Values.http.enabled) }}
{{- fail "ingress.http.enabled is set and http.enabled is not; set http.enabled=true, or the Ingress leads nowhere" }}
{{- end }}
{{- range $kind, $ingress := .Values.ingress }}
{{- if and $ingress.enabled (not $ingress.host) }}
{{- fail (printf "ingress.%s.host: give the name by which clients reach the Ingress" $kind) }}
{{- end }}
{{- end }}
{{- if and .Values.ingress.grpc.enabled .Values.ingress.http.enabled (eq .Values.ingress.grpc.host .Values.ingress.http.host) }}
{{- fail "ingress.grpc.host and ingress.http.host are the same; gRPC and HTTP have different ports, so give each a name" }}
{{- end }}
{{- $mounted := dict }}
{{- range .Values.extraVolumeMounts }}{{ $_ := set $mounted .name true }}{{ end }}
{{- range .Values.extraVolumes }}
{{- if not (hasKey $mounted .name) }}
{{- fail (printf "extraVolumes: nothing mounts the volume %s; add it to extraVolumeMounts" .name) }}
{{- end }}
{{- end }}
{{- end }}
